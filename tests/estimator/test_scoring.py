"""NMF.score: entries that are hidden decide, so that more components are not always better."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.model_selection import GridSearchCV

from factormer import NMF


def planted(m: int = 60, n: int = 25) -> np.ndarray:
    rng = np.random.default_rng(0)
    V = rng.gamma(0.5, size=(m, 3)) @ rng.gamma(0.5, size=(3, n))
    return np.maximum(V + 0.2 * rng.normal(size=V.shape), 0)


def test_grid_search_finds_the_planted_rank():
    search = GridSearchCV(NMF(random_state=0), {"n_components": [1, 3, 8]}, cv=2)
    assert search.fit(planted()).best_params_ == {"n_components": 3}


def test_score_is_the_same_every_time_and_changes_nothing():
    V = planted()
    model = NMF(3, random_state=0).fit(V)
    before = model.components_.copy()
    assert model.score(V) == model.score(V)
    assert model.score(V, None) < 0
    np.testing.assert_array_equal(model.components_, before)


def test_exact_components_score_almost_nothing():
    rng = np.random.default_rng(0)
    V = rng.random((20, 2)) @ rng.random((2, 12))
    model = NMF(2, random_state=0, tol=1e-8, max_iter=2000).fit(V)
    assert model.score(V) == pytest.approx(0, abs=1e-6)


def test_ratings_weights_and_other_losses():
    V = planted(30, 15) + 0.01
    ratings = scipy.sparse.csr_array(np.where(np.median(V) < V, V, 0))
    assert NMF(2, missing="zeros", random_state=0, max_iter=20).fit(ratings).score(ratings) < 0
    model = NMF(2, beta_loss="kullback-leibler", random_state=0, max_iter=20).fit(V)
    assert -1 < model.score(V, mask=V > 0.02, holdout=0.5) < 0
    assert model.score(V[:1]) < 0  # a single row


def test_what_cannot_be_hidden_is_refused():
    model = NMF(2, random_state=0).fit(planted(10, 6))
    with pytest.raises(ValueError, match="holdout is 0"):
        model.score(planted(10, 6), holdout=0.0)
    with pytest.raises(ValueError, match="a row would"):
        NMF(1, random_state=0).fit(np.ones((5, 1))).score(np.ones((5, 1)))


@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
def test_as_many_components_as_entries_of_a_row_score_a_number_that_means_something(beta_loss):
    rng = np.random.default_rng(0)
    V = np.abs(rng.normal(size=(30, 5)))
    for rank in (5, 8):
        model = NMF(rank, beta_loss=beta_loss, random_state=0, max_iter=100, tol=0).fit(V)
        worst = V.max() ** 2 / 2 if beta_loss == "frobenius" else V.max() * 10
        assert -worst < model.score(V) < 0
