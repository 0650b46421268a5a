"""A stack of problems is solved as its members are one by one; padding changes nothing."""

import pytest
import torch
from hypothesis import given

from factormer.data.factors import Factors
from tests.laws.cases import (
    DETERMINISTIC,
    MAX_SIZE,
    assert_close,
    assume_no_exact_fit,
    each_batched_solver,
    generator,
    law,
    pad,
    padded,
    problems,
    run,
    stacked,
)

SHAPE = (5, 4)


@each_batched_solver
@law
@given(a=problems(shape=SHAPE), b=problems(shape=SHAPE), c=problems(shape=SHAPE))
def test_stack_of_equal_shapes_is_solved_as_its_members(solver, a, b, c):
    cases = [a, b, c]
    together = stacked(cases)
    assume_no_exact_fit(solver, together)
    trajectories = zip(*(run(solver, case) for case in cases), strict=True)
    for x, members in zip(run(solver, together), trajectories, strict=True):
        for k, y in enumerate(members):
            assert_close(Factors(x.W[k], x.H[k]), y)


@each_batched_solver
@law
@given(a=problems(), b=problems())
def test_stack_of_mixed_sizes_is_solved_as_its_members(solver, a, b):
    together = stacked([a, b])
    assume_no_exact_fit(solver, together)
    *_, m, n = together.problem.V.shape
    trajectories = zip(run(solver, a), run(solver, b), strict=True)
    for x, members in zip(run(solver, together), trajectories, strict=True):
        for k, y in enumerate(members):
            expected = Factors(pad(y.W, m, y.W.shape[1]), pad(y.H, n, y.H.shape[1]))
            assert_close(Factors(x.W[k], x.H[k]), expected)


@each_batched_solver
@law
@given(case=problems())
def test_padding_stays_exactly_zero_and_changes_nothing(solver, case):
    assume_no_exact_fit(solver, case)
    m, n = case.problem.V.shape
    larger = padded(case, MAX_SIZE + 2, MAX_SIZE + 1)
    for x, y in zip(run(solver, larger), run(solver, case), strict=True):
        assert_close(Factors(x.W[:m], x.H[:n]), y)
        assert not x.W[m:].any()
        assert not x.H[n:].any()


INITIALIZERS = [pytest.param(start, id=name) for name, start in DETERMINISTIC.items()]


@pytest.mark.parametrize("initializer", INITIALIZERS)
@law
@given(a=problems(min_size=3), b=problems(min_size=3))
def test_stack_of_mixed_sizes_starts_as_its_members(initializer, a, b):
    together = stacked([a, b])
    x = initializer(together.problem, generator())
    for k, case in enumerate((a, b)):
        m, n = case.problem.V.shape
        alone = initializer(case.problem, generator())
        assert_close(Factors(x.W[k, :m], x.H[k, :n]), alone, atol=1e-6)
        torch.testing.assert_close(x.W[k, m:], torch.zeros_like(x.W[k, m:]), rtol=0, atol=1e-6)
        torch.testing.assert_close(x.H[k, n:], torch.zeros_like(x.H[k, n:]), rtol=0, atol=1e-6)
