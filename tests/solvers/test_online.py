"""partial_fit: a stream of batches leads where all rows together would."""

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import NMF
from factormer.penalties import Penalties
from factormer.solvers.online import Statistics

draw = np.random.default_rng(0)
PARTS = draw.exponential(size=(4, 20)) * (draw.random((4, 20)) > 0.5)


def batch(m: int, noise: float = 0.02) -> np.ndarray:
    return draw.exponential(size=(m, 4)) @ PARTS + noise * draw.random((m, 20))


def error(model: NMF, X: np.ndarray) -> float:
    return float(np.linalg.norm(X - model.inverse_transform(model.transform(X))))


@pytest.mark.parametrize("size", [3, 40])
def test_one_pass_over_a_stream_learns_its_components(size):
    X = batch(400)
    stream = NMF(4, random_state=0, forget_factor=0.95)
    for k in range(0, 400, size):
        stream.partial_fit(X[k : k + size])
    assert error(stream, X) <= 0.05 * np.linalg.norm(X)
    assert stream.n_steps_ == -(-400 // size)


def test_first_batch_is_a_fit():
    X = batch(30)
    one, other = NMF(4, random_state=0).partial_fit(X), NMF(4, random_state=0).fit(X)
    np.testing.assert_array_equal(one.components_, other.components_)


def test_what_was_fitted_counts_as_a_batch():
    X = batch(200)
    model = NMF(4, random_state=0, forget_factor=1.0).fit(X)
    before = model.components_.copy()
    model.partial_fit(X[:2])
    np.testing.assert_allclose(model.components_, before, rtol=0.05, atol=0.05)


def test_sparse_batches_are_dense_ones():
    X = batch(60) * (draw.random((60, 20)) > 0.5)
    dense, sparse = NMF(4, random_state=0).fit(X), NMF(4, random_state=0).fit(X)
    dense.partial_fit(X[:9])
    sparse.partial_fit(scipy.sparse.csr_array(X[:9]))
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-9, atol=1e-12)


def test_fixed_components_stay_in_a_stream():
    model = NMF(4, fixed_components=PARTS[:2], random_state=0)
    for _ in range(5):
        model.partial_fit(batch(10))
    np.testing.assert_array_equal(model.components_[:2], PARTS[:2])
    model = NMF(4, fixed_components=PARTS[:2], random_state=0).partial_fit(batch(2))
    np.testing.assert_array_equal(model.components_[:2], PARTS[:2])


def test_penalties_hold_in_a_stream():
    X = batch(100)
    plain, sparse = (NMF(4, random_state=0, alpha_H=a, l1_ratio=1.0) for a in (0.0, 0.5))
    for model in (plain, sparse):
        for k in range(0, 100, 10):
            model.partial_fit(X[k : k + 10])
    assert sparse.components_.sum() < plain.components_.sum()


def test_past_weighs_what_it_is_told():
    H, WtW = torch.rand(5, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    past = Statistics.of_fit(H, 3 * WtW, 7)
    torch.testing.assert_close(past.update(H, Penalties()), H)


@pytest.mark.parametrize("value", [0, -1, 1.5, "x"])
def test_wrong_forgetting_is_refused(value):
    with pytest.raises(ValueError, match=r"forget_factor is .* above 0 and at most 1"):
        NMF(2, forget_factor=value).partial_fit(batch(5))


def test_batch_of_another_width_is_refused():
    model = NMF(2, random_state=0).partial_fit(batch(9))
    with pytest.raises(ValueError, match="X has 3 features, but NMF is expecting 20"):
        model.partial_fit(np.ones((2, 3)))


@pytest.mark.parametrize("size", [1e285, 1e-300])
def test_batches_whose_products_are_no_numbers_are_refused(size):
    model = NMF(2, random_state=0).fit(np.eye(3))
    with pytest.raises(ValueError, match="too large or too small"):
        model.partial_fit(np.full((2, 3), size))
