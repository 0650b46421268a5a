"""Restarted: a proposal that does not pay costs one iteration, and nothing is ever lost by it."""

from dataclasses import dataclass
from itertools import islice, pairwise

import pytest
import torch
from torch import Tensor

from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.multiplicative import Multiplicative
from tests.steps import steps

SOLVERS = [HALS(), AOADMM(), TraceAOADMM()]
each_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)


@dataclass(frozen=True)
class Times:
    """Proposes a multiple of the step, and remembers every verdict."""

    factor: float

    def init(self, problem: Problem, x0: Factors) -> tuple[bool, ...]:
        return ()

    def propose(
        self, problem: Problem, memory: tuple[bool, ...], *, before: Factors, stepped: Factors
    ) -> tuple[Factors, tuple[bool, ...]]:
        return Factors(self.factor * stepped.W, self.factor * stepped.H), memory

    def judged(self, memory: tuple[bool, ...], rose: Tensor) -> tuple[bool, ...]:
        return (*memory, bool(rose))


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


@pytest.fixture
def case(rng) -> tuple[Problem, Factors]:
    return Problem(Dense(draw(rng, 12, 9)), 3), Factors(draw(rng, 12, 3), draw(rng, 9, 3))


def points(solver: Solver, case: tuple[Problem, Factors], n_steps: int) -> list[Factors]:
    problem, x0 = case
    return [state.factors for state in islice(steps(problem, solver, x0), n_steps + 1)]


@pytest.mark.parametrize("solver", [HALS(), Multiplicative()], ids=["HALS", "Multiplicative"])
@torch.no_grad()
def test_proposing_the_step_itself_gives_the_plain_solver(solver, case):
    for x, y in zip(
        points(Restarted(solver, Times(1.0)), case, 8), points(solver, case, 8), strict=True
    ):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("factor", [torch.nan, torch.inf, 1e200, 0.0], ids=str)
@torch.no_grad()
def test_useless_proposals_cost_every_other_iteration(factor, case):
    """After a rise the old point is kept, and the iteration that follows is the plain one."""
    solver = Restarted(Multiplicative(), Times(factor))
    plain = points(Multiplicative(), case, 4)
    for t, x in enumerate(points(solver, case, 7)):
        torch.testing.assert_close(x, plain[(t + 1) // 2])


@torch.no_grad()
def test_accelerator_hears_of_each_rise(case):
    problem, x0 = case
    *_, state = islice(steps(problem, Restarted(HALS(), Times(torch.nan)), x0), 6)
    assert state.memory == (False, True, False, True, False)


@each_solver
@pytest.mark.parametrize("accelerator", [Extrapolation(), Times(1.5), Times(-1.0)], ids=repr)
@torch.no_grad()
def test_point_is_no_worse_than_the_plain_step_from_the_start(solver, accelerator, case):
    """Only that step, and those after a rise, are taken whatever comes of them."""
    problem, x0 = case
    states = list(islice(steps(problem, Restarted(solver, accelerator), x0), 20))
    for before, after in pairwise(states[1:]):
        falls = problem.objective(after.factors) <= problem.objective(before.factors) * (1 + 1e-12)
        assert falls or before.plain
        assert all(F.isfinite().all() and (F >= 0).all() for F in after.factors)


@torch.no_grad()
def test_descent_method_stays_one(case):
    problem, x0 = case
    for accelerator in (Extrapolation(), Extrapolation(beta=1.0, eta=1.01, gamma=2.0), Times(3.0)):
        states = islice(steps(problem, Restarted(HALS(), accelerator), x0), 40)
        losses = torch.stack([problem.objective(state.factors) for state in states])
        assert (losses[1:] <= losses[:-1] * (1 + 1e-12)).all()


@torch.no_grad()
def test_error_carried_along_is_that_of_the_point(case):
    problem, x0 = case
    for state in islice(steps(problem, HER(), x0), 30):
        torch.testing.assert_close(state.sq_error(problem), problem.V.sq_error(state.factors))


@torch.no_grad()
def test_adopted_point_drops_the_momentum(case):
    problem, x0 = case
    solver = HER()
    *_, state = islice(steps(problem, solver, x0), 5)
    fresh, adopted = solver.init(problem, x0), solver.adopt(problem, state, x0)
    torch.testing.assert_close(adopted.memory, fresh.memory)
    assert adopted.inner.factors is x0
    assert adopted.plain


@torch.no_grad()
def test_extrapolation_needs_fewer_iterations_than_the_plain_solver(rng):
    V = draw(rng, 40, 4) @ draw(rng, 4, 30) + 0.05 * draw(rng, 40, 30)
    case = Problem(Dense(V), 4), Factors(draw(rng, 40, 4), draw(rng, 30, 4))
    for solver in (HALS(), TraceAOADMM()):
        plain, fast = (
            case[0].rmse(points(s, case, 60)[-1])
            for s in (solver, Restarted(solver, Extrapolation()))
        )
        assert fast < plain


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_start_for_compiled_iterations_is_that_of_any_restarted_solver(dtype, rng):
    """Without gradients a small problem begins in the arrays that compiled loops take."""
    W, H, V = (torch.rand(*s, dtype=dtype, generator=rng) for s in ((9, 3), (7, 3), (9, 7)))
    problem, x0 = Problem(Dense(V), 3), Factors(W, H)
    usual = HER().init(problem, x0)
    with torch.no_grad():
        start = HER().init(problem, x0)
        torch.testing.assert_close(start.factors, x0, rtol=0, atol=0)
        torch.testing.assert_close(start.sq_error(problem), usual.sq_error(problem))
    assert (start.error, start.plain) == (usual.error, usual.plain)
    torch.testing.assert_close(tuple(start.memory), tuple(usual.memory))
    torch.testing.assert_close(start.inner.factors, x0, rtol=0, atol=0)
    assert start.inner[1:] == usual.inner[1:]  # sweeps, and nothing known yet
