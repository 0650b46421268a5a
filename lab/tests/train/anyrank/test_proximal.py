"""Proximal ADMM for training, against the solver's own, and the start of shares for a stack."""

from typing import Any

import pytest
import torch
from torch import Tensor

from factormer.data import Dense, Normal
from factormer.data.factors import Factors
from factormer.problem.penalties import L1, L2, Penalties, Simplex
from factormer.problem.problem import Problem
from factormer.solvers.base import Solver
from factormer.solvers.loop import iterated
from factormer.solvers.proximal import ProximalADMM, admm_quadratic
from factormer_lab.train.anyrank.corners import cornered, corners
from factormer_lab.train.anyrank.proximal import StackedProximal, half_step

PENALTIES = (Penalties(), Penalties.of(L1(0.3)), Penalties.of(Simplex()))


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


@pytest.mark.parametrize("on", PENALTIES, ids=str)
def test_half_step_and_its_gradients_are_the_solvers(on, rng):
    V, W, H, U = draw(rng, 2, 9, 7), draw(rng, 2, 9, 4), draw(rng, 2, 7, 4), draw(rng, 2, 7, 4) / 9
    weights, found = draw(rng, 2, 7, 4), []
    for solve in (
        lambda normal, H, U: admm_quadratic(normal, H, U, on, n_inner=5),
        lambda normal, H, U: half_step(normal, H, U, on, 5),
    ):
        inputs = [F.clone().requires_grad_() for F in (W, H, U)]
        normal = Normal(V.mT @ inputs[0], inputs[0].mT @ inputs[0])
        outputs = solve(normal, *inputs[1:])
        loss = (weights * outputs[0]).sum() + outputs[1].square().sum()
        found.append([*outputs, *torch.autograd.grad(loss, inputs)])
    for expected, each in zip(*found, strict=True):
        torch.testing.assert_close(each, expected, rtol=1e-9, atol=1e-11)


def test_iterations_are_the_solvers(rng):
    V, x0 = draw(rng, 3, 12, 8), Factors(draw(rng, 3, 12, 3), draw(rng, 3, 8, 3))
    problem = Problem(Dense(V), 3, on_w=Penalties.of(Simplex()))
    solvers: tuple[Solver[Any], ...] = (ProximalADMM(), StackedProximal())
    found = [iterated(problem, solver, x0, 3).factors for solver in solvers]
    for expected, each in zip(*found, strict=True):
        torch.testing.assert_close(each, expected, rtol=1e-8, atol=1e-10)


def test_other_penalties_are_refused(rng):
    problem = Problem(Dense(draw(rng, 1, 5, 4)), 2, on_w=Penalties.of(L2(1.0)))
    with pytest.raises(ValueError, match="not L1 or a Simplex by rows"):
        StackedProximal().init(problem, Factors(draw(rng, 1, 5, 2), draw(rng, 1, 4, 2)))


def test_corners_are_the_pure_rows(rng):
    H, W = draw(rng, 4, 9, 3) + 0.1, draw(rng, 4, 20, 3)
    W = 0.7 * W / W.sum(dim=-1, keepdim=True) + 0.1
    pure = torch.tensor([2, 7, 11])
    W[:, pure] = torch.eye(3, dtype=W.dtype)
    x = cornered(W @ H.mT, 3, Penalties.of(Simplex()), rng)
    for b in range(4):
        apart = torch.cdist(x.H[b].mT, H[b].mT).amin(dim=1)
        assert (apart < 1e-8).all()
    torch.testing.assert_close(x.W.sum(dim=-1), torch.ones(4, 20, dtype=W.dtype))
    torch.testing.assert_close(x.W @ x.H.mT, W @ H.mT, rtol=1e-3, atol=1e-3)


def test_corners_have_the_largest_volume(rng):
    Z = draw(rng, 2, 8, 3)
    for b, found in enumerate(corners(Z)):
        every = torch.combinations(torch.arange(8), 3)
        sizes = torch.linalg.det(Z[b][every]).abs()
        assert torch.linalg.det(Z[b][found]).abs() >= 0.8 * sizes.max()
