"""Where the answer is clear, every solver finds the one that scikit-learn finds."""

from typing import Any

import numpy as np
import pytest
import sklearn.decomposition

from factormer import Status, factorize

OPTIONS: dict[str, Any] = {"init": "custom", "tol": 1e-10, "max_iter": 5000}


@pytest.fixture(scope="module")
def case() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noisy sparse parts, and a start that is not far from them."""
    rng = np.random.default_rng(2)
    W, H = (rng.exponential(size=(size, 4)) * (rng.random((size, 4)) < 0.5) for size in (40, 30))
    V = W @ H.T + 0.1 * rng.random((40, 30))
    return V, W + 0.5 * rng.random(W.shape), H + 0.5 * rng.random(H.shape)


@pytest.fixture(scope="module")
def expected(case) -> float:
    """The error that scikit-learn's coordinate descent ends with."""
    V, W, H = case
    model = sklearn.decomposition.NMF(4, **OPTIONS)  # pyright: ignore[reportArgumentType]
    model.fit_transform(V, W=W.copy(), H=H.T.copy())
    return model.reconstruction_err_


@pytest.mark.parametrize("solver", ["her", "hals", "her-admm"])
def test_solver_finds_the_optimum_of_scikit_learn(solver, case, expected):
    V, W, H = case
    result = factorize(V, 4, solver=solver, W=W, H=H, **OPTIONS)
    assert result.status is Status.CONVERGED
    assert np.linalg.norm(V - result.W @ result.H.T) == pytest.approx(expected, rel=1e-6)
