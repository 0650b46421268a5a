"""The SVD bound is the error of the truncated SVD, whichever way it is computed."""

import numpy as np
import pytest
import scipy.sparse

import factormer
from factormer.app.runs import bound
from factormer.app.runs.bound import svd_bound


def literal(V: np.ndarray, k: int) -> np.ndarray:
    squares = np.linalg.svd(V, compute_uv=False) ** 2
    left = squares.sum() - np.concatenate([[0.0], np.cumsum(squares)])[: k + 1]
    return np.sqrt(left.clip(min=0) / V.size)


@pytest.mark.parametrize("shape", [(40, 30), (30, 40)])
@pytest.mark.parametrize("small", [1000, 5])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_bound_is_that_of_the_truncated_svd(monkeypatch, shape, small, as_sparse):
    monkeypatch.setattr(bound, "_SMALL", small)
    V = np.random.default_rng(0).random(shape) ** 3
    given = scipy.sparse.csr_array(V) if as_sparse else V.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(svd_bound(given, 6), literal(V, 6), rtol=1e-6)


def test_bound_ends_at_the_full_rank():
    V = np.random.default_rng(0).random((5, 4))
    found = svd_bound(V, 20)
    assert len(found) == 5
    assert found[-1] == 0
    assert found[-2] > 0


@pytest.mark.parametrize("small", [1000, 5])
def test_bound_of_an_exact_rank_is_zero_and_not_rounding(monkeypatch, small):
    monkeypatch.setattr(bound, "_SMALL", small)
    rng = np.random.default_rng(0)
    V = 1e3 * rng.random((60, 3)) @ rng.random((3, 50))
    found = svd_bound(V, 5)
    assert (found[:3] > 0).all()
    assert (found[3:] == 0).all()


def test_no_fit_is_below_it():
    V = np.random.default_rng(0).random((30, 20))
    assert factormer.factorize(V, 4).rmse >= svd_bound(V, 4)[4]
