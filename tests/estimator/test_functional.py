"""Our start in others' hands, and the estimator as a function."""

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
import torch

from factormer import NMF, custom_start, factorize, non_negative_factorization

draw = np.random.default_rng(0)
X = draw.exponential(size=(40, 4)) @ draw.exponential(size=(4, 30)) + 0.1 * draw.random((40, 30))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # theirs
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("store", [np.asarray, scipy.sparse.csr_matrix])
def test_start_fits_into_scikit_learn(store, dtype):
    V = store(X.astype(dtype))
    W, H = custom_start(V, 4, init="rotated")
    model = sklearn.decomposition.NMF(4, init="custom", max_iter=1000)  # pyright: ignore[reportArgumentType]
    fitted = model.fit_transform(V, W=W, H=H)
    assert fitted.dtype == dtype
    assert np.linalg.norm(X - fitted @ model.components_) < 0.1 * np.linalg.norm(X)


def test_start_is_that_of_the_engine():
    W, H = custom_start(X, 4, init="nndsvd")
    start = factorize(X, 4, init="nndsvd", solver="her", max_iter=0)
    np.testing.assert_allclose(W, start.W)
    np.testing.assert_allclose(H, start.H.T)
    assert W.flags.c_contiguous
    assert H.flags.c_contiguous


def test_start_of_tensors_is_tensors():
    W, H = custom_start(torch.from_numpy(X), 4)
    assert (W.shape, H.shape) == ((40, 4), (4, 30))
    assert isinstance(H, torch.Tensor)


def test_function_is_the_estimator():
    W, H, n_iter = non_negative_factorization(X, n_components=4, random_state=0, tol=1e-6)
    model = NMF(4, random_state=0, tol=1e-6)
    np.testing.assert_array_equal(W, model.fit_transform(X))
    np.testing.assert_array_equal(H, model.components_)
    assert n_iter == model.n_iter_


def test_function_finds_coefficients_alone():
    H = draw.random((4, 30))
    W, same, _ = non_negative_factorization(X, H=H, update_H=False, alpha_W=0.01)
    assert same is H
    model = NMF(4, alpha_W=0.01, fixed_components=H).fit(X[:3])
    np.testing.assert_allclose(W, model.transform(X), atol=1e-12)
    with pytest.raises(ValueError, match="update_H=False needs H"):
        non_negative_factorization(X, update_H=False)
