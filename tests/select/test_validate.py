"""cross_validate: the planted rank predicts hidden entries best, and nothing is done twice."""

import importlib
import itertools

import numpy as np
import pytest
import scipy.sparse

from factormer import Status, cross_validate
from factormer.penalties import L2
from factormer.problem.losses import Beta
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
