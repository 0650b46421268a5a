"""Stages continue from each other, and the result is that of the last one."""

from typing import Any

import numpy as np
import pytest
import torch

from factormer.accelerate.her import HER
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.run.result import Status
from factormer.run.solve import solve
from factormer.run.stages import Stage, solve_in_stages
from factormer.run.trace import Trace
from factormer.solvers.ao_admm import AOADMM
from factormer.starts import Random
from tests.run.scripted import NEVER, point


def stages_of(*limits: int, **options: Any) -> list[Stage]:
    one = Problem(Dense(torch.ones(1, 1, dtype=torch.float64)), 1)
    return [Stage(one, AOADMM(), limit, NEVER, **options) for limit in limits]


def test_stages_go_on_from_each_other(problem, rng):
    solver, x0 = AOADMM(), Random()(problem, rng)
    whole = solve(problem, solver, x0, stop=NEVER, max_iter=9)
    parts = solve_in_stages([Stage(problem, solver, k, NEVER) for k in (2, 5, 9)], x0)
    assert parts.n_iter == 9
    np.testing.assert_allclose(parts.trace.rmse, whole.trace.rmse)
    torch.testing.assert_close(parts.factors, whole.factors)


def test_stage_that_converges_gives_way_to_the_next():
    def at_once(problem: Problem, x: Factors, trace: Trace) -> Status:
        return Status.CONVERGED

    stages = stages_of(9, 4)
    result = solve_in_stages([stages[0]._replace(stop=at_once), stages[1]], point(0.5))
    assert (result.status, result.n_iter) == (Status.MAX_ITER, 4)


@pytest.mark.parametrize("status", [Status.TIME_LIMIT, Status.INTERRUPTED], ids=str)
def test_error_is_that_on_the_last_problem_even_where_it_is_not_reached(status):
    def rule(problem: Problem, x: Factors, trace: Trace) -> Status:
        if status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return status

    coarse = Problem(Dense(torch.full((1, 1), 3.0).double()), 1)
    last = stages_of(9)[0]._replace(stop=NEVER)
    stages = [Stage(coarse, AOADMM(), 9, rule, exact=False), last]
    result = solve_in_stages(stages, point(0.5))
    assert (result.status, result.n_iter) == (status, 0)
    assert result.rmse == pytest.approx(0.5)


def test_result_has_the_precision_of_the_last_problem(problem, rng):
    single = Problem(problem.V.to(torch.float32), 3)
    for last in (problem, single):
        for limits in ((2, 4), (4, 4)):
            pairs = zip((single, last), limits, strict=True)
            stages = [Stage(p, HER(), k, NEVER) for p, k in pairs]
            result = solve_in_stages(stages, Random()(problem, rng))
            assert result.factors.W.dtype == last.V.dtype
            assert result.n_iter == 4
            assert result.rmse == pytest.approx(last.rmse(result.factors).item(), rel=1e-3)
