"""Multiplicative updates: against a literal loop and scikit-learn's, zeros and all."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import non_negative_factorization
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.multiplicative import Multiplicative


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


def step(V: Tensor, x: Factors, n_steps: int = 1) -> Factors:
    problem, solver = Problem(Dense(V), x.W.shape[-1]), Multiplicative()
    state = solver.init(problem, x)
    for _ in range(n_steps):
        state = solver.step(problem, state)
    return state.factors


def multiplied(V: np.ndarray, W: np.ndarray, H: np.ndarray) -> np.ndarray:
    """Lee and Seung's update of H, an entry at a time."""
    new = H.copy()
    for j in range(H.shape[0]):
        for c in range(H.shape[1]):
            above = sum(V[i, j] * W[i, c] for i in range(len(W)))
            below = sum(H[j, k] * (W[:, k] @ W[:, c]) for k in range(H.shape[1]))
            new[j, c] = H[j, c] * above / below
    return new


def test_step_is_that_of_lee_and_seung(rng):
    V, (W, H) = draw(rng, 6, 5), (draw(rng, 6, 3), draw(rng, 5, 3))
    x = step(V, Factors(W, H))
    expected_H = multiplied(V.numpy(), W.numpy(), H.numpy())
    np.testing.assert_allclose(x.H, expected_H, rtol=1e-12)
    np.testing.assert_allclose(x.W, multiplied(V.numpy().T, expected_H, W.numpy()), rtol=1e-12)


def test_steps_are_scikit_learns_in_the_other_order(rng):
    V, W, H = draw(rng, 6, 5), draw(rng, 6, 3), draw(rng, 5, 3)
    options: dict[str, Any] = {"n_components": 3, "init": "custom", "solver": "mu"}
    theirs_W, theirs_Ht, _ = non_negative_factorization(
        V.numpy(), W.numpy().copy(), H.T.numpy().copy(), max_iter=20, tol=0, **options
    )
    ours = step(V.mT, Factors(H, W), 20)
    np.testing.assert_allclose(ours.H, theirs_W, rtol=1e-9)
    np.testing.assert_allclose(ours.W, theirs_Ht.T, rtol=1e-9)


def test_zeros_stay_zero(rng):
    V, W, H = draw(rng, 6, 5), draw(rng, 6, 3), draw(rng, 5, 3)
    W, H = W * (W > 0.5), H * (H > 0.5)
    x = step(V, Factors(W, H), 5)
    assert not x.W[W == 0].any()
    assert not x.H[H == 0].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("c", [0.0, 1e-30, 1.0])
def test_empty_rows_columns_and_components_stay_finite(c, dtype, rng):
    V, W, H = draw(rng, 6, 5), draw(rng, 6, 3), c * draw(rng, 5, 3)
    V[2], V[:, 1], W[:, 0] = 0, 0, 0
    x = step(V.to(dtype), Factors(W.to(dtype), H.to(dtype)), 5)
    assert all(F.isfinite().all() and (F >= 0).all() for F in x)
