"""Whatever the problem, iterates are feasible and finite, and a step leaves its inputs alone."""

from collections.abc import Iterator
from typing import Any

import torch
from hypothesis import given
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.laws.cases import each_initializer, each_solver, generator, law, problems, run


def tensors(*values: Any) -> Iterator[Tensor]:
    """All tensors in nested states."""
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


@each_solver
@law
@given(case=problems())
def test_iterates_are_feasible_and_finite(solver, case):
    for x in run(solver, case, n_steps=6):
        assert all((F >= 0).all() and F.isfinite().all() for F in x)


@each_solver
@law
@given(case=problems())
def test_step_is_pure(solver, case):
    problem = case.problem
    state = solver.step(problem, solver.init(problem, case.x0))  # one with a past
    before = [t.clone() for t in tensors(case.entries, case.x0, state)]
    first, second = solver.step(problem, state), solver.step(problem, state)
    after = list(tensors(case.entries, case.x0, state))
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    twice = zip(tensors(first), tensors(second), strict=True)
    assert all(torch.equal(a, b) for a, b in twice)


@each_solver
@law
@given(case=problems())
def test_solver_starts_at_the_point_it_is_given(solver, case):
    x = solver.init(case.problem, case.x0).factors
    assert torch.equal(x.W, case.x0.W)
    assert torch.equal(x.H, case.x0.H)


@each_solver
@law
@given(case=problems())
def test_adopted_point_is_where_the_solver_goes_on(solver, case):
    state = solver.step(case.problem, solver.init(case.problem, case.x0))
    x = case.x0.scale(2.0)
    assert solver.adopt(case.problem, state, x).factors is x


@each_initializer
@law
@given(case=problems())
def test_starts_are_feasible_and_finite(initializer, case):
    (m, n), r = case.problem.V.shape, case.problem.rank
    x = initializer(case.problem, generator())
    assert (x.W.shape, x.H.shape) == ((m, r), (n, r))
    assert all((F >= 0).all() and F.isfinite().all() for F in x)


@each_initializer
@law
@given(case=problems())
def test_start_depends_on_nothing_but_problem_and_generator(initializer, case):
    before = case.entries.clone()
    x, y = (initializer(case.problem, generator()) for _ in range(2))
    assert torch.equal(x.W, y.W)
    assert torch.equal(x.H, y.H)
    assert torch.equal(case.entries, before)
