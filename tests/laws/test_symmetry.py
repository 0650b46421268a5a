"""Symmetries of the problem that every solver and start has: transposition and permutation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from factormer.data.factors import Factors
from tests.laws.cases import (
    SOLVERS,
    assert_close,
    assume_no_exact_fit,
    each_deterministic_initializer,
    each_solver,
    generator,
    law,
    permutations,
    permuted,
    problems,
    run,
)

seeds = st.integers(0, 1000)
# Networks mix the two half-steps, so that an accelerated solver has no half-step of its own.
ALTERNATING = [name for name in SOLVERS if not name.startswith(("Learned", "Refining"))]


@law
@given(case=problems())
def test_loss_of_the_transposed_problem_is_the_loss(case):
    problem, x = case
    torch.testing.assert_close(problem.T.objective(x.swap()), problem.objective(x))  # (7)


@pytest.mark.parametrize("name", ALTERNATING)
@law
@given(case=problems())
def test_w_half_step_is_the_h_half_step_of_the_transposed_problem(name, case):
    """A step is an H-update, then a W-update; the latter is the former, transposed."""
    solver, (problem, x0) = SOLVERS[name], case
    x1 = solver.step(problem, solver.init(problem, x0)).factors
    between = Factors(x1.H, x0.W)  # of the transposed problem, whose first update is that of W
    swapped = solver.step(problem.T, solver.init(problem.T, between)).factors
    torch.testing.assert_close(swapped.H, x1.W, rtol=1e-7, atol=1e-8)


@each_solver
@law
@given(case=problems(), seed=seeds)
def test_permuting_rows_and_columns_permutes_the_iterates(solver, case, seed):
    assume_no_exact_fit(solver, case)
    p, q = permutations(case, seed)
    for x, y in zip(run(solver, case), run(solver, permuted(case, p, q)), strict=True):
        assert_close(y, Factors(x.W[p], x.H[q]))


@each_deterministic_initializer
@law
@given(case=problems(min_size=3), seed=seeds)
def test_permuting_rows_and_columns_permutes_the_start(initializer, case, seed):
    p, q = permutations(case, seed)
    x = initializer(case.problem, generator())
    y = initializer(permuted(case, p, q).problem, generator())
    assert_close(y, Factors(x.W[p], x.H[q]), atol=1e-6)
