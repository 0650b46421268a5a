"""cross_validate: the planted rank predicts hidden entries best, and nothing is done twice."""

import importlib
import itertools

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import torch

from factormer import Status, cross_validate
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.penalties import L2
from factormer.problem.losses import Beta
from factormer.select.holdout import Speckled
from factormer.select.validate import CrossValidation

validating = importlib.import_module("factormer.select.validate")


def planted(m: int = 60, n: int = 30, r: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 20 * rng.gamma(0.4, size=(m, r)) @ rng.gamma(0.4, size=(r, n))


def test_planted_rank_is_found_under_both_losses():
    rng = np.random.default_rng(1)
    V = planted()
    noisy = np.maximum(V + 2.0 * rng.normal(size=V.shape), 0)
    assert cross_validate(noisy, [2, 3, 4], n_folds=2, max_iter=20).rank == 3
    counts = cross_validate(rng.poisson(V), [2, 3, 4], n_folds=3, loss="kullback-leibler")
    assert counts.rank == counts.rank_1se == 3
    assert counts.errors.shape == (3, 3)
    assert counts.loss == Beta(1.0)


def test_folds_are_the_same_for_every_rank_and_seed_decides():
    V = planted(20, 12)
    both = cross_validate(V, [2, 3], n_folds=2, max_iter=5)
    alone = cross_validate(V, 2, n_folds=2, max_iter=5)
    np.testing.assert_allclose(both.errors[0, 0], alone.errors[0, 0])
    other = cross_validate(V, 2, n_folds=2, max_iter=5, random_state=1)
    assert not np.allclose(other.errors, alone.errors)


def test_of_several_starts_the_best_fit_counts():
    V = planted(20, 12)
    one = cross_validate(V, [3], n_folds=2, n_init=3, max_iter=20)
    assert one.errors.shape == (1, 2)
    assert not np.isnan(one.errors).any()


def test_ratings_gaps_weights_and_penalties():
    V = np.round(planted(20, 12))
    ratings = cross_validate(scipy.sparse.csr_array(V), 2, missing="zeros", n_folds=2, max_iter=5)
    dense = cross_validate(V, 2, missing="zeros", n_folds=2, max_iter=5)
    np.testing.assert_allclose(ratings.errors, dense.errors, rtol=0.1)  # from other starts
    gaps = np.where(V > 20, np.nan, V)
    firm = cross_validate(gaps, 2, n_folds=2, max_iter=5, regularize_W=L2(1.0), weights=np.ones(20))
    assert np.isfinite(firm.errors).all()


def test_least_error_and_smallest_rank_within_a_standard_error():
    errors = np.array([[3.0, 3.2, 2.9], [1.2, 1.2, 1.3], [1.05, 1.04, 1.1], [1.4, 1.5, 1.3]])
    found = CrossValidation(np.array([1, 2, 3, 4]), errors, Beta(2.0), 0.1)
    assert found.rank == 3
    assert found.rank_1se == 3
    close = errors.copy()
    close[1] = [1.0, 1.2, 1.0]  # 0.003 more than at rank 3, give or take 0.08
    found = CrossValidation(np.array([1, 2, 3, 4]), close, Beta(2.0), 0.1)
    assert (found.rank, found.rank_1se) == (3, 2)
    np.testing.assert_allclose(found.mean, close.mean(axis=1))
    np.testing.assert_allclose(found.standard_error, close.std(axis=1, ddof=1) / np.sqrt(3))


def test_one_bad_fold_does_not_decide():
    rng = np.random.default_rng(0)
    level = np.array([3.0, 1.2, 1.0, 1.3])
    errors = level[:, None] * rng.uniform(0.95, 1.05, (4, 10))
    found = CrossValidation(np.array([1, 2, 3, 4]), errors, Beta(2.0), 0.1)
    assert found.rank == found.rank_1se == 3
    errors[2, 4] = 50.0  # which the plain mean would hold against rank 3
    bad = CrossValidation(np.array([1, 2, 3, 4]), errors, Beta(2.0), 0.1)
    assert bad.rank == bad.rank_1se == 3
    np.testing.assert_allclose(bad.mean, np.sort(errors, axis=1)[:, 1:-1].mean(axis=1))
    np.testing.assert_allclose(bad.mean, level, rtol=0.02)


def test_ranks_that_differ_by_chance_are_as_good():
    rng = np.random.default_rng(0)
    hard = rng.uniform(1, 9, 10)  # how hard its entries are to predict, at any rank
    errors = hard * np.array([[1.5], [1.0], [1.0], [1.2]]) * rng.uniform(0.95, 1.05, (4, 10))
    found = CrossValidation(np.array([1, 2, 3, 4]), errors, Beta(2.0), 0.1)
    assert found.ranks_as_good.tolist() == [2, 3]
    alone = CrossValidation(np.array([1, 2, 3, 4]), errors[:, :1], Beta(2.0), 0.1)
    assert alone.ranks_as_good.tolist() == [alone.rank]


def test_the_standard_error_is_that_of_trimmed_means():
    folds = np.random.default_rng(1).gamma(2.0, size=(3, 10))
    found = CrossValidation(np.array([1, 2, 3]), folds, Beta(2.0), 0.1)
    kept = scipy.stats.trim_mean(folds, 0.1, axis=1)
    np.testing.assert_allclose(found.mean, kept)
    near = np.array(scipy.stats.mstats.winsorize(folds, (0.1, 0.1), axis=1))
    h, n = 8, 10  # Yuen (1974): the sum of squares over h (h − 1)
    expected = np.sqrt((n - 1) * near.var(axis=1, ddof=1) / (h * (h - 1)))
    np.testing.assert_allclose(found.standard_error, expected)


def test_a_prediction_counts_as_the_largest_entry_seen_at_most():
    V = np.random.default_rng(0).uniform(1, 2, (8, 6))
    held = Speckled.of(Dense(torch.from_numpy(V)), 5, 0)
    huge = Factors(*(torch.full((size, 1), 100.0, dtype=torch.float64) for size in (8, 6)))
    hidden = held.values[held.part == 0]
    most = float(held.values[held.part != 0].max())
    expected = float((0.5 * (hidden - most) ** 2).mean())
    assert held.error(0, huge, Beta(2.0)) == pytest.approx(expected)


def test_exact_data_take_the_smallest_rank_that_is_exact():
    V = np.ones((12, 9))
    assert cross_validate(V, [1, 2], n_folds=2).rank == 1


def test_table_and_picture():
    pytest.importorskip("pandas")
    found = cross_validate(planted(20, 12), [1, 2], n_folds=2, max_iter=5)
    assert list(found.table()) == ["rank", "error", "standard_error"]
    figure = pytest.importorskip("matplotlib.figure").Figure()
    assert found.plot(figure.subplots()).get_xlabel() == "rank"
    assert "2 folds of 10%" in repr(found)


@pytest.mark.parametrize(
    ("ranks", "options", "sentence"),
    [
        ([], {}, "ranks is empty"),
        ([0], {}, "rank is 0"),
        ("3", {}, "rank is '3'"),
        (2, {"holdout": 0.9}, "holdout is 0.9; it must be a share"),
        (2, {"holdout": 0.25, "n_folds": 5}, "at most 4"),
        (2, {"n_folds": 0}, "n_folds is 0"),
    ],
)
def test_wrong_options_are_refused(ranks, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        cross_validate(planted(10, 8), ranks, **options)


def test_wrong_data_are_refused():
    for V, sentence in (
        (np.ones((1, 9)), "none can be hidden"),
        (np.ones((2, 3, 4)), "one matrix"),
        (np.full((5, 4), 1e-200), "divide V by its mean"),
        (scipy.sparse.csr_array((10_000, 10_000)), "missing='zeros'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            cross_validate(V, 2)
    assert cross_validate(planted(8, 6), [9], n_folds=1, max_iter=5).rank == 9


def test_time_limit_and_ctrl_c_return_what_is_done(monkeypatch):
    V = planted(20, 12)
    with pytest.raises(TimeoutError, match="allow more time"):
        cross_validate(V, [1, 2], time_limit=1e-9)
    whole = validating.factorize_many

    def some(*args, **options):
        yield from itertools.islice(whole(*args, **options), 3)
        if options["time_limit"] is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(validating, "factorize_many", some)
    for limit, status in ((1000, Status.TIME_LIMIT), (None, Status.INTERRUPTED)):
        found = cross_validate(V, [1, 2], n_folds=2, max_iter=5, time_limit=limit)
        assert found.status is status
        missing = np.isnan(found.errors)
        assert missing.sum() == 1
        whole_fold = found.errors[:, ~missing.any(axis=0)]  # the one that both ranks have
        np.testing.assert_allclose(found.mean, whole_fold[:, 0])


def test_ranks_are_compared_by_the_folds_they_share():
    nan = np.nan
    errors = np.array([[3.0, 3.0, 3.0], [2.0, 1.0, nan], [1.0, nan, nan], [nan, nan, nan]])
    found = CrossValidation(np.array([1, 2, 3, 4]), errors, Beta(2.0), 0.1)
    np.testing.assert_array_equal(found.mean, [3, 2, 1, nan])
    assert (found.rank, found.rank_1se) == (3, 3)
