"""NMF keeps the contract of a scikit-learn transformer, and says what it did."""

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import sklearn.decomposition
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


# In a process without the shape checks: they forbid what one of the checks does, which is to make
# estimators of nonsense, and make the others ten times slower.
CHECK_AND_REPORT = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
from factormer import NMF
with warnings.catch_warnings():
    warnings.simplefilter("error")
    done = check_estimator(NMF(**json.loads(sys.argv[1])), on_skip=None, on_fail=None)
print(json.dumps([[d["check_name"], d["status"], repr(d["exception"])] for d in done]))
"""


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "ao-admm", "init": "nndsvd", "max_iter": 50},
        pytest.param({}, marks=pytest.mark.slow),
    ],
    ids=["quick", "defaults"],
)
def test_scikit_learns_own_checks_pass(options):
    command = [sys.executable, "-c", CHECK_AND_REPORT, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)
    assert len(checks) > 40
    failed = [f"{name}: {error}" for name, status, error in checks if status == "failed"]
    assert not failed, "\n".join(failed)


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
    W, result = NMF(3, random_state=0).fit_transform(X), factorize(X, 3)
    np.testing.assert_array_equal(W, result.W)


def test_fit_finds_the_components_that_fit_transform_finds():
    est, other = NMF(3, random_state=0), NMF(3, random_state=0)
    assert est.fit(X) is est
    other.fit_transform(X)
    np.testing.assert_array_equal(est.components_, other.components_)


def test_transform_of_the_training_data_is_the_fitted_factor_once_converged():
    est = NMF(3, max_iter=1000, tol=1e-8)
    W = est.fit_transform(X)
    assert est.result_.status is Status.CONVERGED
    np.testing.assert_allclose(est.transform(X), W, atol=1e-5)


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
    assert NMF(max_iter=2).fit(X).components_.shape == (12, 12)


def test_single_precision_stays():
    est = NMF(3, max_iter=5)
    W = est.fit_transform(X.astype(np.float32))
    assert (W.dtype, est.components_.dtype) == (np.float32, np.float32)
    assert est.transform(X.astype(np.float32)).dtype == np.float32


def test_custom_start_is_oriented_as_in_scikit_learn():
    W, H = np.full((24, 3), 0.5), np.random.default_rng(0).random((3, 12))
    est = NMF(3, init="custom", max_iter=1, tol=0.0)
    est.fit_transform(X, W=W, H=H)
    start = np.sqrt(np.mean((X - W @ H) ** 2))
    assert est.result_.trace.rmse[0] == pytest.approx(start)


@pytest.mark.parametrize("seeds", [(3, 3), (np.random.RandomState(3), np.random.RandomState(3))])
def test_same_random_state_gives_the_same_factors(seeds):
    first, second = (NMF(3, init="random", max_iter=3, random_state=s).fit(X) for s in seeds)
    np.testing.assert_array_equal(first.components_, second.components_)


def test_other_random_state_gives_other_factors():
    first, second = (NMF(3, init="random", max_iter=3, random_state=s).fit(X) for s in (3, 4))
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
    est = NMF(**options)
    twin: Any = clone(est)
    assert est.get_params() == options
    assert twin.get_params() == options
    assert NMF().set_params(**options).get_params() == options


def test_clone_is_not_fitted():
    twin: Any = clone(NMF(3, max_iter=2).fit(X))
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


def test_output_can_be_a_data_frame():
    if find_spec("pandas") is None:
        pytest.skip("pandas is not installed")
    frame = NMF(3, max_iter=2).set_output(transform="pandas").fit_transform(X)
    assert list(frame.columns) == ["nmf0", "nmf1", "nmf2"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_components": 0}, "rank is 0; it must be a whole number of at least 1"),
        ({"max_iter": -1}, "max_iter is -1; it must be a whole number of at least 0"),
        ({"tol": -1.0}, "tol is -1.0; it must be at least 0"),
        ({"time_limit": 0.0}, "time_limit is 0.0; it must be a positive number of seconds"),
        ({"init": "nonsense"}, "init is 'nonsense'; choose one of auto, "),
        ({"solver": "nonsense"}, "solver is 'nonsense'; choose one of auto, "),
        ({"accelerator": "nonsense"}, "accelerator is 'nonsense'; choose one of auto, None"),
        ({"device": "gpu"}, "device is 'gpu', which is not on this machine"),
    ],
)
def test_wrong_option_is_refused_with_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        NMF(**({"n_components": 3} | options)).fit(X)


@pytest.mark.parametrize("method", ["fit", "transform"])
def test_negative_data_are_refused_with_a_sentence(method):
    est = NMF(3, max_iter=1).fit(X)
    with pytest.raises(
        ValueError, match=r"Negative values in data passed to NMF: V has .* shift or clip"
    ):
        getattr(est, method)(-X)
