"""An accelerated solver: nothing by itself, never worse where guarded, the proposal where not."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings

from factormer.accelerate.base import (
    Accelerated,
    AfterIteration,
    Always,
    Descent,
    Hedged,
    Identity,
    Judged,
)
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from tests.laws.cases import SOLVERS, accelerator, law, problems, run, stacked

PLAIN = {name: s for name, s in SOLVERS.items() if not isinstance(s, Accelerated | Hedged)}
each_plain = pytest.mark.parametrize("solver", PLAIN.values(), ids=PLAIN.keys())
# Those that drop no momentum when they adopt a point.
STEADY = {name: s for name, s in PLAIN.items() if not isinstance(s, Judged)}


@dataclass(frozen=True)
class Broken:
    """Proposes numbers that are none."""

    value: float

    def init(self, problem: Problem, x0: Factors) -> None:
        return None

    def propose(
        self, problem: Problem, memory: None, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, None]:
        return Factors(*(torch.full_like(F, self.value) for F in stepped)), None


@dataclass(frozen=True)
class Counting:
    """Proposes the solver's own point and counts how often it was asked."""

    def init(self, problem: Problem, x0: Factors) -> int:
        return 0

    def propose(
        self, problem: Problem, memory: int, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, int]:
        return stepped, memory + 1


ACCELERATORS = {
    "paper": accelerator("paper"),
    "refining": accelerator("refining"),
    "nan": Broken(torch.nan),
    "inf": Broken(torch.inf),
    "huge": Broken(1e200),
}
each_accelerator = pytest.mark.parametrize(
    "proposer", ACCELERATORS.values(), ids=ACCELERATORS.keys()
)


@pytest.mark.parametrize("solver", STEADY.values(), ids=STEADY.keys())
@pytest.mark.parametrize("safeguard", [Descent(), Always()], ids=repr)
@law
@given(case=problems())
def test_identity_gives_the_plain_solver_exactly(solver, safeguard, case):
    accelerated = Accelerated(solver, Identity(), safeguard)
    for x, y in zip(run(accelerated, case), run(solver, case), strict=True):
        assert torch.equal(x.W, y.W)
        assert torch.equal(x.H, y.H)


@each_plain
@each_accelerator
@settings(max_examples=4)  # of each of many pairs
@given(case=problems())
@torch.no_grad()
def test_guarded_step_is_never_above_the_plain_one_from_the_same_state(solver, proposer, case):
    problem, x0 = case
    accelerated = Accelerated(solver, proposer, Descent())
    state = accelerated.init(problem, x0)
    for _ in range(2):
        plain = solver.step(problem, state.inner).factors
        state = accelerated.step(problem, state)
        bound = problem.objective(plain) * (1 + 1e-12) + 1e-28  # rounding depends on alignment
        assert problem.objective(state.factors) <= bound
        assert all(F.isfinite().all() for F in state.factors)
        assert state.inner.factors is state.factors  # the solver continues from the point taken


@each_accelerator
@law
@given(case=problems())
@torch.no_grad()
def test_step_judged_after_an_iteration_is_not_above_the_plain_one_then(proposer, case):
    solver, problem = SOLVERS["ao-admm"], case.problem
    accelerated = Accelerated(solver, proposer, AfterIteration(solver), n_accel=1)
    state = accelerated.step(problem, accelerated.init(problem, case.x0))
    plain = solver.step(problem, solver.init(problem, case.x0))
    after, other = accelerated.step(problem, state), solver.step(problem, plain)
    bound = problem.objective(other.factors) * (1 + 1e-12) + 1e-28
    assert problem.objective(after.factors) <= bound
    assert all(F.isfinite().all() for F in state.factors)


@each_accelerator
@pytest.mark.parametrize("safeguard", [AfterIteration(SOLVERS["ao-admm"]), Always()], ids=repr)
@settings(max_examples=8)  # of each of many pairs
@given(case=problems())
@torch.no_grad()
def test_hedged_run_is_never_above_the_plain_one(proposer, safeguard, case):
    """On any iteration, whatever is proposed and kept."""
    solver, problem = SOLVERS["ao-admm"], case.problem
    hedged = Hedged(Accelerated(solver, proposer, safeguard))
    for x, y in zip(run(hedged, case), run(solver, case), strict=True):
        assert problem.objective(x) <= problem.objective(y) * (1 + 1e-12) + 1e-28
        assert all(F.isfinite().all() for F in x)


@torch.no_grad()
def test_proposal_that_an_iteration_repairs_is_kept():
    """H is replaced by the iteration: that it is three times too large says nothing."""
    rng = torch.Generator().manual_seed(0)
    W, H = (torch.rand(k, 3, generator=rng, dtype=torch.float64) for k in (9, 7))
    problem, proposed = Problem(Dense(W @ H.mT), 3), Factors(W, 3 * H)
    poor = Factors(*(torch.rand(F.shape, generator=rng, dtype=F.dtype) for F in (W, H)))
    assert not Descent().accept(problem, stepped=poor, proposed=proposed)
    assert AfterIteration(SOLVERS["hals"]).accept(problem, stepped=poor, proposed=proposed)


@law
@given(a=problems(), b=problems())
@torch.no_grad()
def test_members_of_a_stack_are_guarded_apart(a, b):
    """A proposal that is good for one problem alone is taken for that one alone."""
    solver, both = SOLVERS["ao-admm"], stacked([a, b])
    stepped = solver.step(both.problem, solver.init(both.problem, both.x0)).factors
    worse = stepped.scale(torch.tensor([1.0, 9.0], dtype=stepped.W.dtype))
    accepted = Descent().accept(both.problem, stepped=stepped, proposed=worse)
    losses = both.problem.objective(worse) <= both.problem.objective(stepped)
    assert accepted.tolist() == losses.tolist()
    assert accepted[0]


@each_plain
@law
@given(case=problems())
def test_unguarded_step_takes_the_proposal(solver, case):
    problem, x0 = case
    proposer = accelerator("paper")
    accelerated = Accelerated(solver, proposer, Always())
    x1 = accelerated.step(problem, accelerated.init(problem, x0)).factors
    stepped = solver.step(problem, solver.init(problem, x0)).factors
    proposed, _ = proposer.propose(problem, None, before=x0, stepped=stepped)
    assert torch.equal(x1.W, proposed.W)
    assert torch.equal(x1.H, proposed.H)


@law
@given(case=problems())
def test_iterations_after_the_accelerated_ones_are_plain(case):
    solver, problem = SOLVERS["ao-admm"], case.problem
    accelerated = Accelerated(solver, Counting(), n_accel=2)
    state = accelerated.init(problem, case.x0)
    for t in range(5):
        assert state.t == t
        assert state.memory == min(t, 2)
        plain = solver.step(problem, state.inner).factors
        state = accelerated.step(problem, state)
        assert torch.equal(state.factors.W, plain.W)
