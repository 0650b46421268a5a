"""Solve one problem after another: coarse versions of the data first, the data itself last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from factormer.accelerate.passes import whole
from factormer.data.factors import Factors, some
from factormer.kernels.rules import LOOK_EVERY
from factormer.problem.problem import Problem
from factormer.run import thresholds as T
from factormer.run.request import Request
from factormer.run.result import Result, Status
from factormer.run.solve import solve
from factormer.run.stop import EVERY, StopRule
from factormer.run.trace import Row
from factormer.solvers.base import Solver


class Stage(NamedTuple):
    """A problem, its solver, the iteration to end at, and a stop rule.

    `exact` says whether its errors are those of the last problem.
    """

    problem: Problem
    solver: Solver[Any]
    max_iter: int
    stop: StopRule
    exact: bool = True


def solve_in_stages(
    stages: list[Stage],
    x0: Factors,
    *,
    started: float | None = None,
    callback: Callable[[Row], object] | None = None,
    stride: int = 10,
) -> Result:
    """Solve one problem after another, each from where the one before it ended: coarse, then fine.

    The result, and its error, are those of the last problem, even where time runs out before it.
    """
    last, result = stages[-1], None
    for stage in stages:
        x = x0 if result is None else result.factors
        earlier = None if result is None else result.trace
        result = solve(
            stage.problem,
            stage.solver,
            stage.problem.taken(whole(stage.problem.V, x)),
            stop=stage.stop,
            max_iter=stage.max_iter,
            started=started if result is None else None,
            callback=callback,
            earlier=earlier,
            stride=stride if stage is last else min(stride, 10),  # others end by their rules
        )
        over = result.status not in (Status.CONVERGED, Status.MAX_ITER)
        if over or stage is last or result.n_iter >= last.max_iter:
            break
    else:
        raise AssertionError("the last stage always breaks")
    last = last.problem
    x, error = last.taken(whole(last.V, result.factors)), result.error
    exact = stage.exact and stage.problem.V.dtype == last.V.dtype
    if not exact or some((error <= last.blurred()) | error.isinf()):
        error = last.rmse(x)
    return replace(result, factors=x, error=error)


def stride_of(request: Request) -> int:
    """How many iterations a leap makes between checks of stop rules, clock and signals.

    As many as `Pace` has between two looks; more if it never looks and iterations are fast. A time
    limit has no part in it: the result is the best point of those checked, so it would change.
    """
    limits, problem = request.limits, request.problem
    if limits.tol or len(problem.V.shape) > 2:
        return LOOK_EVERY if request.stop == "auto" else EVERY
    iteration = 2 * problem.rank * max(float(problem.V.work()), 1.0)  # multiplications, about
    return int(min(max(T.LOOKS / iteration, 10), 500))
