"""Sweeps with a gradient of their own, against HALS and its automatic gradient."""

import sys

import pytest
import torch
from torch import Tensor

from factormer.data import Dense, Normal
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.hals import HALS, sweep
from factormer_lab.train.anyrank.sweeps import Rows, Sweeps, SweptHALS, _inverse, _on, swept


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


def problem_of(rng: torch.Generator, *, flat: bool = False) -> list[Tensor]:
    W = draw(rng, 2, 8, 4)
    if flat:
        W[0, :, 2] = 0
    F = draw(rng, 2, 6, 4) * 3
    H = draw(rng, 2, 6, 4) - 0.3
    return [t.requires_grad_() for t in (W.mT @ W, F, H)]


@pytest.mark.parametrize("flat", [False, True], ids=["curved", "flat"])
@pytest.mark.parametrize("n_sweeps", [1, 3])
def test_values_and_gradients_are_those_of_the_twin(n_sweeps, flat, rng):
    G, F, H = problem_of(rng, flat=flat)
    weight = draw(rng, 2, 6, 4)

    ours = Sweeps.apply(G, F, H, n_sweeps)
    found = torch.autograd.grad((ours * weight).sum(), (G, F, H))

    theirs = H.clamp(min=0)
    for _ in range(n_sweeps):
        theirs = sweep(Normal(F, G), theirs)
    expected = torch.autograd.grad((theirs * weight).sum(), (G, F, H))

    torch.testing.assert_close(ours, theirs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_step_is_that_of_hals(rng):
    problem = Problem(Dense(draw(rng, 2, 9, 7)), 3)
    x0 = Factors(draw(rng, 2, 9, 3), draw(rng, 2, 7, 3))
    state = HALS().init(problem, x0)
    solver = SweptHALS(int(state.sweeps_h[0]), int(state.sweeps_w[0]))
    with torch.no_grad():
        ours = solver.step(problem, solver.init(problem, x0))
        theirs = HALS().step(problem, state)
    torch.testing.assert_close((*ours.factors,), (*theirs.factors,))
    torch.testing.assert_close(ours.sq_error(problem), theirs.sq_error(problem))


def test_sweeps_are_as_many_as_the_engine_makes():
    problem = Problem(Dense(torch.ones(2, 50, 40)), 5)
    state = HALS().init(problem, Factors(torch.ones(2, 50, 5), torch.ones(2, 40, 5)))
    assert swept(50, 40, 5, compressed=False) == SweptHALS(
        int(state.sweeps_h[0]), int(state.sweeps_w[0])
    )
    assert swept(500, 400, 5, compressed=True).sweeps_h < 5


@pytest.mark.parametrize("n", [5, 131])
def test_compiled_sweeps_are_those_in_torch(n, rng):
    torch_twins, rows = sys.modules[Sweeps.__module__], _on(torch.zeros(1))
    assert isinstance(rows, Rows), "numba compiles here"
    W, F, H, weight = (draw(rng, 2, k, 5) for k in (8, n, n, n))
    G = W.mT @ W
    G[1, 3], G[1, :, 3] = 0, 0  # a component without curvature
    arguments = (G, _inverse(G), 3 * F, H, 3)
    points = rows.sweeps(*arguments)
    torch.testing.assert_close(points, torch_twins.sweeps(*arguments))
    ours, theirs = (on.gradients(*arguments[:2], points, weight) for on in (rows, torch_twins))
    torch.testing.assert_close(ours, theirs)
