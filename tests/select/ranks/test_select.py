"""select_rank: planted ranks are found, and every input is answered or refused in a sentence."""

import numpy as np
import pytest
import scipy.sparse
import torch

import factormer
from factormer.select.ranks import view
from factormer.select.ranks.criteria import HIDING, Criterion
from factormer.select.ranks.reason import candidates, reason_of

RANKS = range(1, 9)


def planted(rank=4, shape=(60, 45), counts=False, seed=0):
    rng = np.random.default_rng(seed)
    W, H = (rng.gamma(0.4, size=(size, rank)) for size in shape)
    clean = W @ H.T / (W @ H.T).mean()
    if counts:
        return rng.poisson(30 * clean).astype(float)
    return np.maximum(clean + 0.05 * rng.normal(size=shape), 0)


@pytest.fixture(scope="module")
def easy():
    return factormer.select_rank(planted(), RANKS)


def test_a_planted_rank_is_found(easy):
    assert easy.rank == 4
    assert type(easy.rank) is int
    assert easy.clear is True
    assert list(easy.probabilities) == list(RANKS)
    assert sum(easy.probabilities.values()) == pytest.approx(1)
    assert easy.probabilities[4] == max(easy.probabilities.values())
    assert easy.reason.startswith("4 components")
    assert "4" in repr(easy)


@pytest.mark.parametrize(
    ("left", "text"),
    [(0.2, "80 %"), (0.006, "99.4 %"), (0.0022, "99.8 %"), (0.0003, "over 99.9 %"), (0, "over")],
)
def test_what_is_explained_is_never_rounded_up_to_all(left, text):
    curves = {
        "error": np.array([1.0, left**0.5]),
        "over_noise": np.ones(2),
        "stability": np.ones(2),
    }
    rules = {"a rule": Criterion(np.zeros(2), 2, "a rule")}
    reason = reason_of(2, True, {1: 0.0, 2: 1.0}, rules, curves, [])
    assert f" and {text}" in reason
    assert "100 %" not in reason


@pytest.mark.parametrize(
    ("after", "argues"), [(1.1, "component 3 would be 1.10 times"), (1.31, "")]
)
def test_a_reason_does_not_argue_against_itself(after, argues):
    curves = {name: np.ones(3) for name in ("error", "stability")}
    curves["over_noise"] = np.array([3.0, 1.28, after])
    rules = {"a rule": Criterion(np.zeros(3), 2, "a rule")}
    reason = reason_of(2, True, {1: 0.0, 2: 0.9, 3: 0.1}, rules, curves, [])
    assert ("would be" in reason) == bool(argues)
    assert argues in reason
    if not argues:
        assert "Size does not tell component 2 from component 3 (1.28 and 1.31 times" in reason


def test_what_is_not_clear_names_the_ranks_to_compare():
    chances = {1: 0.02, 2: 0.5, 3: 0.08, 4: 0.4}
    assert candidates(2, True, chances) == [2]
    assert candidates(2, False, chances) == [2, 4]
    assert candidates(2, False, {1: 0.05, 2: 0.9, 3: 0.05}) == [1, 2, 3]
    assert candidates(1, False, {1: 0.95, 2: 0.05}) == [1, 2]
    curves = {name: np.ones(4) for name in ("error", "stability", "over_noise")}
    rules = {"a rule": Criterion(np.zeros(4), 2, "a rule")}
    reason = reason_of(2, False, chances, rules, curves, [])
    assert reason.endswith("Look at the components of ranks 2 and 4 before you settle on one.")


def test_the_table_has_a_row_for_each_rank(easy):
    table = easy.table
    assert list(table["rank"]) == list(RANKS)
    for name in ("probability", "error", "svd_error", "stability", "bic", "description_length",
                 "singular_value_threshold", "bi_cross_validation"):  # fmt: skip
        assert table[name].notna().all(), name
    assert (table["error"] >= table["svd_error"] - 1e-6).all()


def test_the_picture_marks_the_choice(easy):
    figure = easy.plot()
    assert len(figure.axes) == 4
    assert "4 components" in figure.get_suptitle()


def test_counts_are_chosen_for_under_their_own_loss():
    choice = factormer.select_rank(planted(5, counts=True), RANKS, loss="kullback-leibler")
    assert choice.rank == 5


def test_kinds_of_arrays_give_the_same_choice(easy):
    V = planted()
    for data in (torch.from_numpy(V), scipy.sparse.csr_array(V), V.astype(np.float32)):
        choice = factormer.select_rank(data, RANKS)
        assert choice.rank == 4
        assert choice.probabilities[4] == pytest.approx(easy.probabilities[4], abs=0.05)


def test_the_unit_of_the_data_does_not_matter(easy):
    choice = factormer.select_rank(1e150 * planted(), RANKS)
    assert choice.probabilities[4] == pytest.approx(easy.probabilities[4], abs=1e-3)


def test_the_same_seed_gives_the_same_choice(easy):
    assert factormer.select_rank(planted(), RANKS).probabilities == easy.probabilities


@pytest.mark.parametrize("how", ["nan", "mask"])
def test_unknown_entries_are_no_obstacle(how):
    V = planted()
    hidden = np.random.default_rng(3).random(V.shape) < 0.1
    hidden[7] = True  # a row of which nothing is known
    if how == "nan":
        choice = factormer.select_rank(np.where(hidden, np.nan, V), RANKS)
    else:
        choice = factormer.select_rank(V, RANKS, mask=~hidden)
    assert choice.rank == 4


def test_few_known_entries_are_enough_where_they_are_listed():
    V = planted(2, (80, 70))
    known = np.random.default_rng(3).random(V.shape) < 0.25
    assert factormer.select_rank(np.where(known, V, np.nan), range(1, 5)).rank in RANKS


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_a_large_matrix_is_seen_through_its_sketch(make, monkeypatch):
    monkeypatch.setattr(view, "LARGE", 1000)
    monkeypatch.setattr(view, "_BLOCK", 50)
    assert factormer.select_rank(make(planted(shape=(90, 80))), RANKS).rank == 4


def test_ranks_may_be_any_list():
    choice = factormer.select_rank(planted(), [7, 2, 4, 2])
    assert list(choice.probabilities) == [2, 4, 7]
    assert choice.rank == 4


def test_ranks_beyond_the_rows_that_are_not_empty_are_left_out():
    V = planted(shape=(60, 45))
    V[7:] = 0
    choice = factormer.select_rank(V, range(1, 12))
    assert list(choice.probabilities) == list(range(1, 8))
    with pytest.raises(ValueError, match="7 rows and 45 columns that are not empty"):
        factormer.select_rank(V, [8, 9])


def test_cross_validation_joins_the_rules_if_asked():
    choice = factormer.select_rank(planted(2, (30, 20)), range(1, 4), cross_validate=True)
    rule = choice.criteria["cross-validation"]
    assert rule.rank == 2
    np.testing.assert_allclose(
        choice.table["cross_validation"],
        factormer.cross_validate(planted(2, (30, 20)), range(1, 4), **HIDING).mean,
    )
    choice.plot()


def test_hidden_counts_are_judged_by_the_loss_of_counts():
    V = planted(2, (30, 20), counts=True)
    options = {"loss": "kullback-leibler", "random_state": 1}
    choice = factormer.select_rank(V, range(1, 4), cross_validate=True, **options)
    found = factormer.cross_validate(V, range(1, 4), **HIDING, **options)
    rule = choice.criteria["cross-validation"]
    np.testing.assert_allclose(rule.values, found.mean)
    assert rule.rank == found.rank_1se


def test_one_rank_is_answered_but_never_clear():
    choice = factormer.select_rank(planted(), 3)
    assert (choice.rank, choice.clear, choice.probabilities) == (3, False, {3: 1.0})
    assert "only rank" in choice.reason


def test_the_largest_rank_that_was_tried_is_never_clear():
    choice = factormer.select_rank(planted(), range(1, 5))
    assert not choice.clear
    if choice.rank == 4:
        assert "try larger" in choice.reason


@pytest.mark.parametrize(
    ("V", "rank"),
    [
        (np.full((20, 15), 3.0), 1),
        (np.outer(np.arange(1, 9), np.arange(1, 7)), 1),
        (np.eye(2).repeat(5, 0).repeat(6, 1), 2),
        (np.arange(1.0, 6.0)[None], 1),
    ],
)
def test_data_of_rank_one_or_two_is_recognised_as_exact(V, rank):
    choice = factormer.select_rank(V)
    assert (choice.rank, choice.clear) == (rank, True)
    assert "exactly" in choice.reason
    choice.plot()
    assert len(choice.table) == len(choice.probabilities)


@pytest.mark.parametrize("ranks", [range(5, 9), [2, 4, 8], [1, 5, 9]])
def test_a_rank_without_its_neighbours_is_never_clear(ranks):
    rng = np.random.default_rng(0)
    V = (
        rng.gamma(0.5, size=(60, 3))
        @ rng.gamma(0.5, size=(3, 40))
        * rng.uniform(0.9, 1.1, (60, 40))
    )
    choice = factormer.select_rank(V, ranks)
    assert not choice.clear
    assert "ry " in choice.reason


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_unit_of_v_does_not_matter(scale):
    rng = np.random.default_rng(0)
    V = (
        rng.gamma(0.5, size=(40, 3))
        @ rng.gamma(0.5, size=(3, 30))
        * rng.uniform(0.9, 1.1, (40, 30))
    )
    assert factormer.select_rank(scale * V, range(1, 6)).rank == 3


def test_under_other_divergences_ranks_are_compared_by_one_that_is_known():
    V = np.random.default_rng(0).poisson(3.0, (30, 20)).astype(float)
    counted = factormer.select_rank(V, range(1, 4), loss=0.5)
    assert counted.reason.endswith("Ranks were compared under the Kullback–Leibler divergence.")
    other = factormer.select_rank(V + 0.5, range(1, 4), loss=0)
    assert other.reason.endswith("Ranks were compared under the squared error.")


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (2, 30), (5, 4)])
def test_tiny_data_is_answered(shape):
    V = np.random.default_rng(0).random(shape)
    assert 1 <= factormer.select_rank(V).rank <= min(shape)


@pytest.mark.parametrize(
    ("V", "options", "sentence"),
    [
        (np.ones((6, 5)), {"ranks": range(1, 8)}, "ranks goes up to 7; V has 6 rows and 5 columns"),
        (np.ones((6, 5)), {"ranks": []}, "ranks is empty"),
        (np.ones((6, 5)), {"ranks": [0, 1]}, "rank is 0; it must be a whole number"),
        (np.ones((6, 5)), {"ranks": "select"}, "rank is 'select'"),
        (np.zeros((6, 5)), {}, "V has no entry above 0"),
        (np.full((6, 5), np.nan), {}, "no entry of V is known"),
        (-np.ones((6, 5)), {}, "Negative"),
        (np.ones((2, 6, 5)), {}, "it must be one matrix"),
        (np.ones((6, 5)), {"loss": "hinge"}, "choose 'frobenius'"),
        (
            np.ones((6, 5)),
            {"model": "any-rank"},
            "any-rank is an any-rank accelerator; choose one that chooses a rank",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(V, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        factormer.select_rank(V, **options)


# The estimator


def test_nmf_selects_its_number_of_components():
    model = factormer.NMF("select", random_state=0)
    W = model.fit_transform(planted())
    assert model.choice_ is not None
    assert (model.n_components_, W.shape, model.choice_.clear) == (4, (60, 4), True)
    assert factormer.NMF(3, random_state=0).fit(planted()).choice_ is None


def test_nmf_warns_where_the_rank_is_not_clear():
    V = np.random.default_rng(0).random((12, 10))
    with pytest.warns(UserWarning, match="The number of components is not clear"):
        factormer.NMF("select", random_state=0).fit(V)


@pytest.mark.parametrize("options", [{"init": "custom"}, {"fixed_components": np.ones((1, 45))}])
def test_nmf_refuses_to_select_what_is_given(options):
    with pytest.raises(ValueError, match="a number of components of their own"):
        factormer.NMF("select", **options).fit(planted())


def test_nmf_refuses_to_select_from_a_stream():
    with pytest.raises(ValueError, match="takes all rows at once"):
        factormer.NMF("select").partial_fit(planted())
