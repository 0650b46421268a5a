"""HALS against an independent answer, and the compiled sweeps against those in torch."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.optimize
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition._nmf import _fit_coordinate_descent

from factormer.data import Dense, Normal
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers import hals
from factormer.solvers.hals import HALS, hals_nnls, sweep
from tests.steps import steps


def draw(rng, *shape, dtype=torch.float64):
    return torch.rand(*shape, generator=rng, dtype=dtype)


def normal_of(rng, m, n, r, dtype=torch.float64) -> tuple[Normal, torch.Tensor, torch.Tensor]:
    W, V = draw(rng, m, r, dtype=dtype), draw(rng, m, n, dtype=dtype)
    return Dense(V).normal(W), W, V


@torch.no_grad()
def test_sweeps_solve_nonnegative_least_squares(rng):
    normal, W, V = normal_of(rng, 12, 70, 4)
    H = hals_nnls(normal, torch.zeros(70, 4, dtype=torch.float64), n_sweeps=torch.tensor(3000))
    expected = np.stack([scipy.optimize.nnls(W.numpy(), v)[0] for v in V.T.numpy()])
    assert (expected == 0).any()
    np.testing.assert_allclose(H, expected, atol=1e-10)


@torch.no_grad()
def test_float32_is_swept_in_either_precision(rng, monkeypatch):
    normal, *_ = normal_of(rng, 30, 200, 5, dtype=torch.float32)
    H, found = draw(rng, 200, 5, dtype=torch.float32), []
    for heavy in (0, np.inf):
        monkeypatch.setattr(hals, "_HEAVY", heavy)
        found.append(hals_nnls(normal, H, n_sweeps=torch.tensor(3)))
    assert all(F.dtype == torch.float32 for F in found)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 127, 128, 129, 300])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
@torch.no_grad()
def test_compiled_sweeps_are_those_in_torch(rng, n, dtype, atol):
    normal, _, _ = normal_of(rng, 20, n, 5, dtype)
    H = expected = draw(rng, n, 5, dtype=dtype)
    for _ in range(3):
        expected = sweep(normal, expected)
    torch.testing.assert_close(
        hals_nnls(normal, H, n_sweeps=torch.tensor(3)), expected, rtol=0, atol=atol
    )


@torch.no_grad()
def test_without_a_kernel_torch_does_the_work(rng, monkeypatch):
    normal, _, _ = normal_of(rng, 8, 9, 3)
    H = draw(rng, 9, 3)
    compiled = hals_nnls(normal, H, n_sweeps=torch.tensor(2))
    monkeypatch.setattr("factormer.solvers.hals.compiled", lambda *_: None)
    torch.testing.assert_close(hals_nnls(normal, H, n_sweeps=torch.tensor(2)), compiled)


@torch.no_grad()
def test_loss_never_rises(rng):
    problem = Problem(Dense(draw(rng, 30, 20)), 6)
    x0 = Factors(draw(rng, 30, 6), draw(rng, 20, 6))
    states = steps(problem, HALS(), x0)
    losses = [problem.objective(next(states).factors).item() for _ in range(30)]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(losses))


@torch.no_grad()
def test_one_sweep_an_iteration_is_scikit_learns_coordinate_descent(rng):
    X = load_digits(return_X_y=True)[0][:100].astype(float)
    W, H = draw(rng, 100, 5), draw(rng, 64, 5)
    problem, k = Problem(Dense(torch.from_numpy(X)), 5), 20
    # Its half-steps come in the other order, W first: it solves the transposed problem.
    states = steps(problem.T, HALS(alpha=0.0), Factors(H, W))
    ours = [next(states) for _ in range(k + 1)][-1].factors
    theirs_W, theirs_Ht, _ = _fit_coordinate_descent(
        X, W.numpy().copy(), H.T.numpy().copy(), tol=0, max_iter=k, shuffle=False
    )
    np.testing.assert_allclose(ours.H, theirs_W, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.W, theirs_Ht.T, rtol=1e-6, atol=1e-8)


@torch.no_grad()
def test_component_that_dies_can_come_back():
    V = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    x0 = Factors(torch.eye(2, dtype=torch.float64), torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double())
    states = steps(Problem(Dense(V), 2), HALS(), x0)
    *_, last = (next(states) for _ in range(4))
    torch.testing.assert_close(last.factors.W @ last.factors.H.T, V)
