"""NMF keeps the contract of a scikit-learn transformer, and says what it did."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from factormer import NMF, Status, factorize


def well_separated(m: int = 24, n: int = 12, rank: int = 3) -> np.ndarray:
    """Blocks with a little noise: a factorisation that is found in a few iterations."""
    rng = np.random.default_rng(0)
    blocks = np.kron(np.eye(rank), np.ones((m // rank, n // rank)))
    return blocks * rng.uniform(1, 2, size=(m, 1)) + 0.01 * rng.random((m, n))


X = well_separated()


def test_fit_transform_gives_both_factors():
    est = NMF(3, random_state=0)
    W = est.fit_transform(X)
    assert (W.shape, est.components_.shape) == ((24, 3), (3, 12))
    assert (W >= 0).all()
    assert (est.components_ >= 0).all()
    assert est.n_components_ == 3
    assert np.linalg.norm(X - W @ est.components_) < 0.01 * np.linalg.norm(X)


def test_error_and_iterations_are_those_of_the_fit():
    est = NMF(3, max_iter=7, tol=0.0)
    W = est.fit_transform(X)
    assert est.reconstruction_err_ == pytest.approx(np.linalg.norm(X - W @ est.components_))
    assert est.n_iter_ == 7
    assert est.result_.status is Status.MAX_ITER
    assert len(est.result_.trace) == 8


def test_estimator_and_engine_give_the_same():
    est, result = (
        NMF(3, random_state=0, tol=1e-8, order=None, scale=None),
        factorize(X, 3, tol=1e-8, order=None, scale=None),
    )
    W = est.fit_transform(X)
    np.testing.assert_array_equal(est.components_, result.H.T)
    np.testing.assert_array_equal(W, result.W)
    assert est.reconstruction_err_ == pytest.approx(result.rmse * np.sqrt(X.size))


def test_fit_finds_the_components_that_fit_transform_finds():
    est, other = NMF(3, random_state=0), NMF(3, random_state=0)
    assert est.fit(X) is est
    other.fit_transform(X)
    np.testing.assert_array_equal(est.components_, other.components_)


@pytest.mark.parametrize(
    "options", [{}, {"max_iter": 200, "tol": 1e-9}, {"alpha_W": 0.01}, {"solver": "mu"}]
)
def test_transform_of_the_training_data_is_the_fitted_factor(options):
    """Converged or not, where there is a tolerance: W is the exact answer to the components."""
    est = NMF(3, random_state=0, **options)
    W = est.fit_transform(X)
    np.testing.assert_allclose(est.transform(X), W, rtol=1e-10, atol=1e-12)
    sparse = scipy.sparse.csr_array(X)
    np.testing.assert_allclose(est.transform(sparse), W, rtol=1e-9, atol=1e-11)


def test_number_of_iterations_alone_leaves_the_factor_of_the_last_one():
    """With tol = 0 nothing is added to the run: both factors are those of `factorize`."""
    est = NMF(3, random_state=0, max_iter=5, tol=0.0, order=None, scale=None)
    W, result = est.fit_transform(X), factorize(X, 3, max_iter=5, tol=0.0, order=None, scale=None)
    np.testing.assert_array_equal(W, result.W)
    np.testing.assert_allclose(est.transform(X), W, atol=1e-3 * W.max())


def test_components_changed_by_hand_are_seen():
    est = NMF(3, random_state=0).fit(X)
    est.components_[[0, 1]] = est.components_[[1, 0]]
    swapped = est.transform(X)
    est.components_ = est.components_[[1, 0, 2]]
    np.testing.assert_allclose(est.transform(X), swapped[:, [1, 0, 2]], atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_in_are_tensors_out(dtype):
    V = torch.from_numpy(X).to(dtype)
    est = NMF(3, random_state=0)
    W = est.fit_transform(V)
    assert all(isinstance(F, torch.Tensor) for F in (W, est.components_, est.transform(V)))
    assert W.dtype == est.components_.dtype == est.inverse_transform(W).dtype == dtype
    assert est.transform(X[:2]).__class__ is np.ndarray  # as it came in
    assert isinstance(NMF(3, random_state=0).fit(X).transform(V), torch.Tensor)
    torch.testing.assert_close(est.transform(V), W)


@pytest.mark.gpu
def test_device_in_is_device_out():
    V = torch.from_numpy(X)
    est = NMF(3, random_state=0)
    W = est.fit_transform(V.cuda())
    assert W.is_cuda
    assert est.components_.is_cuda
    assert est.transform(V.cuda()).is_cuda
    assert not est.transform(V).is_cuda
    on_gpu = NMF(3, random_state=0, device="cuda").fit_transform(X)
    assert isinstance(on_gpu, np.ndarray)


@pytest.mark.parametrize("store", [scipy.sparse.csr_matrix, scipy.sparse.csc_array])
def test_sparse_data_are_taken_both_ways(store):
    est = NMF(3, random_state=0)
    W = est.fit_transform(store(X))
    assert isinstance(W, np.ndarray)
    np.testing.assert_allclose(est.inverse_transform(store(W)), W @ est.components_)


def test_stack_of_tensors_is_refused():
    with pytest.raises(ValueError, match="must be one matrix, samples by features"):
        NMF(3).fit(torch.ones(2, 3, 4))


def test_pickle_brings_all_of_it_back():
    est = NMF(3, random_state=0).fit(X)
    back = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(back.transform(X), est.transform(X))


def test_names_of_scikit_learn_are_taken():
    names = sklearn.decomposition.NMF().get_params()  # pyright: ignore[reportCallIssue]
    assert names.keys() <= NMF().get_params().keys()
    choices: tuple[dict[str, Any], ...] = (
        {"solver": "cd", "init": None},
        {"solver": "mu", "init": "nndsvdar"},
    )
    for options in choices:
        est = NMF(3, shuffle=True, max_iter=500, random_state=0, **options).fit(X)
        assert est.reconstruction_err_ < 0.1 * np.linalg.norm(X)


def test_number_of_components_is_that_of_a_custom_start():
    W, H = np.full((24, 2), 0.5), np.random.default_rng(0).random((2, 12))
    assert NMF(init="custom", tol=0.0, max_iter=3).fit(X, W=W, H=H).n_components_ == 2


def test_transform_fits_new_rows_as_well_as_scikit_learn():
    est, new = NMF(3).fit(X[::2]), X[1::2]
    other = sklearn.decomposition.NMF(3, max_iter=1000)  # pyright: ignore[reportArgumentType]
    other.fit(X[::2])
    other.components_ = est.components_
    errors = [np.linalg.norm(new - e.transform(new) @ est.components_) for e in (est, other)]
    assert errors[0] <= errors[1] * (1 + 1e-6)


def test_row_of_zeros_has_no_coefficients():
    assert not NMF(3).fit(X).transform(np.zeros((1, 12))).any()


def test_inverse_transform_gives_the_data_back():
    est = NMF(3)
    W = est.fit_transform(X)
    np.testing.assert_array_equal(est.inverse_transform(W), W @ est.components_)
    np.testing.assert_allclose(est.inverse_transform(W), X, atol=0.1)


def test_rank_is_by_default_the_number_of_features():
    assert NMF(max_iter=2, tol=0.0).fit(X).components_.shape == (12, 12)


def test_single_precision_stays():
    est = NMF(3, max_iter=5, tol=0.0)
    W = est.fit_transform(X.astype(np.float32))
    assert (W.dtype, est.components_.dtype) == (np.float32, np.float32)
    assert est.transform(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("bad", [math.inf, math.nan, -1.0, "a", 1j])
@pytest.mark.parametrize("side", ["W", "H"])
def test_custom_start_that_is_none_gets_a_sentence(bad, side):
    start = {"W": np.ones((len(X), 2)), "H": np.ones((2, X.shape[1]))}
    changed = start[side].astype(type(bad) if not isinstance(bad, str) else "U3")
    changed[0, 1] = bad
    with pytest.raises(ValueError, match=rf"{side}.* (NaN or infinite|clip them|real numbers)"):
        NMF(2, init="custom").fit(X, **start | {side: changed})


def test_custom_start_is_oriented_as_in_scikit_learn():
    W, H = np.full((24, 3), 0.5), np.random.default_rng(0).random((3, 12))
    est = NMF(3, init="custom", max_iter=1, tol=0.0)
    est.fit_transform(X, W=W, H=H)
    start = np.sqrt(np.mean((X - W @ H) ** 2))
    assert est.result_.trace.rmse[0] == pytest.approx(start)


@pytest.mark.parametrize("seeds", [(3, 3), (np.random.RandomState(3), np.random.RandomState(3))])
def test_same_random_state_gives_the_same_factors(seeds):
    first, second = (
        NMF(3, init="random", max_iter=3, tol=0.0, random_state=s).fit(X) for s in seeds
    )
    np.testing.assert_array_equal(first.components_, second.components_)


def test_other_random_state_gives_other_factors():
    first, second = (
        NMF(3, init="random", max_iter=3, tol=0.0, random_state=s).fit(X) for s in (3, 4)
    )
    assert not np.array_equal(first.components_, second.components_)


def test_every_option_of_factorize_is_an_option_here():
    options = {
        "n_components": 5,
        "init": "random",
        "solver": "ao-admm",
        "accelerator": None,
        "max_iter": 3,
        "tol": 0.5,
        "time_limit": 9.0,
        "device": "cpu",
        "random_state": 1,
    }
    for est in (NMF(**options), clone(NMF(**options)), NMF().set_params(**options)):
        params: dict[str, Any] = est.get_params()  # pyright: ignore[reportAttributeAccessIssue]
        assert params | options == params


def test_clone_is_not_fitted():
    twin: Any = clone(NMF(3, max_iter=2, tol=0.0).fit(X))
    with pytest.raises(NotFittedError):
        twin.transform(X)


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
def test_use_before_fit_is_refused(method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(NMF(3), method)(X)


def test_estimator_works_in_a_pipeline():
    pipeline: Any = make_pipeline(MaxAbsScaler(), NMF(3, max_iter=20, random_state=0))
    W = pipeline.fit_transform(X)
    assert W.shape == (24, 3)
    assert pipeline.transform(X[:5]).shape == (5, 3)
    assert list(pipeline.get_feature_names_out()) == ["nmf0", "nmf1", "nmf2"]


def test_data_frames_keep_their_names():
    pandas = pytest.importorskip("pandas")
    names = [f"word {k}" for k in range(12)]
    frame = pandas.DataFrame(X, columns=names)
    est: Any = NMF(3, max_iter=2, tol=0.0, random_state=0).set_output(transform="pandas")
    W = est.fit_transform(frame)
    assert list(W.columns) == ["nmf0", "nmf1", "nmf2"]
    assert list(est.feature_names_in_) == names
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        est.transform(X)
    with pytest.raises(ValueError, match="feature names should match"):
        est.transform(frame.rename(columns={"word 0": "sentence"}))
    est.fit(X)
    assert not hasattr(est, "feature_names_in_")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_components": 0}, "n_components is 0; it must be a whole number of at least 1"),
        ({"max_iter": -1}, "max_iter is -1; it must be a whole number of at least 0"),
        ({"tol": -1.0}, "tol is -1.0; it must be at least 0"),
        ({"time_limit": 0.0}, "time_limit is 0.0; it must be a positive number of seconds"),
        ({"init": "nonsense"}, "init is 'nonsense'; choose one of auto, "),
        ({"solver": "nonsense"}, "solver is 'nonsense', .* choose one of auto, "),
        ({"accelerator": "nonsense"}, "accelerator is 'nonsense'; choose one of auto, None"),
        ({"device": "gpu"}, "device is 'gpu', which is not on this machine"),
    ],
)
def test_wrong_option_is_refused_with_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        NMF(**({"n_components": 3} | options)).fit(X)


@pytest.mark.parametrize("method", ["fit", "transform"])
def test_negative_data_are_refused_with_a_sentence(method):
    est = NMF(3, max_iter=1, tol=0.0).fit(X)
    with pytest.raises(
        ValueError, match=r"Negative values in data passed to NMF: V has .* shift or clip"
    ):
        getattr(est, method)(-X)
