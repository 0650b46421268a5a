"""How iterations are made does not show: leaps of a and b are one of a + b, to the last bit."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from factormer.accelerate.her import HER
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.run.multistart import Generations, Halving
from factormer.solvers.ao_admm import AOADMM
from factormer.solvers.base import Solver
from factormer.solvers.loop import Look, go_on, iterated, loop
from tests.laws.cases import SOLVERS, Case, law, problems
from tests.steps import steps


def seen(looks: list[Look]) -> list[torch.Tensor]:
    """The errors of all iterations but the start's, and the last point."""
    errors = torch.cat([look.errors for look in looks[1:]])
    return [errors, *looks[-1].factors]


def assert_free_of_strides(solver: Solver[Any], problem: Problem, x0: Factors, n: int) -> None:
    whole = seen(list(loop(problem, solver, x0, limit=n, at_most=n)))
    assert len(whole[0]) == n
    looks = list(loop(problem, solver, x0, limit=n, at_most=2))  # n is odd: the last is one alone
    assert all(torch.equal(a, b) for a, b in zip(seen(looks), whole, strict=True))
    assert [look.t for look in looks] == sorted({look.t for look in looks})
    assert looks[-1].t == n


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
@law
@given(case=problems())
@torch.no_grad()
def test_strides_do_not_show(solver, case):
    assert_free_of_strides(solver, case.problem, case.x0, 5)


@law
@given(case=problems(min_size=3), seed=st.integers(0, 99))
@torch.no_grad()
def test_strides_of_several_starts_do_not_show(case, seed):
    rng = torch.Generator().manual_seed(seed)
    others = [Factors(*(torch.rand(F.shape, generator=rng).double() for F in case.x0))] * 3
    others += [Factors(*(F.flip(0) for F in case.x0))]
    halving = Halving(HER(), tuple(others), rounds=(1, 4))
    assert_free_of_strides(halving, case.problem, case.x0, 5)
    generations = Generations(HER(), tuple(others), n_children=2, span=2, every=3)
    assert_free_of_strides(generations, case.problem, case.x0, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_strides_do_not_show_where_leaps_end_early(dtype, rng):
    W, H = (torch.rand(k, 2, generator=rng, dtype=dtype) for k in (12, 10))
    x0 = Factors(*(F + 1e-3 * torch.rand(F.shape, generator=rng, dtype=dtype) for F in (W, H)))
    problem = Problem(Dense(W @ H.mT), 2)
    solver, n = HER(), 41
    assert len(solver.leap(problem, solver.init(problem, x0), n)[1]) < n
    assert_free_of_strides(solver, problem, x0, n)


def test_looks_are_single_steps_where_gradients_are_wanted(rng):
    V = torch.rand(6, 5, generator=rng).double().requires_grad_()
    problem = Problem(Dense(V), 2)
    x0 = Factors(*(torch.rand(k, 2, generator=rng).double() for k in (6, 5)))
    looks = list(loop(problem, HER(), x0, limit=3, at_most=3))
    assert [look.t for look in looks] == [0, 1, 2, 3]
    looks[-1].errors.sum().backward()
    assert V.grad is not None
    assert V.grad.isfinite().all()


@law
@given(case=problems())
@torch.no_grad()
def test_loop_goes_on_from_a_state_and_counts_on(case: Case):
    problem, x0 = case
    solver = AOADMM()
    state = iterated(problem, solver, x0, 2)
    looks = list(go_on(problem, solver, state, limit=5, made=2))
    assert [look.t for look in looks] == [2, 3, 4, 5]
    walk = steps(problem, solver, x0)
    expected = [next(walk) for _ in range(6)][-1]
    assert torch.equal(looks[-1].factors.W, expected.factors.W)
    assert iterated(problem, solver, x0, 0).factors.W.equal(x0.W)
