"""solve(): run a solver until a stop rule ends it.

The clock covers the solver alone; errors and stop rules are bookkeeping, off the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.data import Blocks, readings
from factormer.data.factors import Factors, every, some, where
from factormer.data.held import Held
from factormer.kernels.threads import threads
from factormer.problem.problem import Problem
from factormer.run.result import Result, Status
from factormer.run.stop import Pace, StopRule
from factormer.run.trace import Row, Trace
from factormer.solvers.base import Solver
from factormer.solvers.loop import loop


@torch.no_grad()
def solve(
    problem: Problem,
    solver: Solver[Any],
    x0: Factors,
    *,
    stop: StopRule | None = None,
    max_iter: int = 200,
    started: float | None = None,
    callback: Callable[[Row], object] | None = None,
    earlier: Trace | None = None,
    stride: int = 10,
) -> Result:
    """Iterate from x0 until `stop` says so, or for `max_iter` outer iterations.

    The best point seen is returned, so nothing is lost if the solver is not a descent method,
    overflows, or is interrupted (Ctrl-C). `started` is a reading of `time.perf_counter()` from
    before the start was made, so that its cost is in the trace. With the trace of an `earlier` run
    that ended at x0, iterations are counted from there, and the error is infinite if none was made.
    A solver that can make many iterations at once makes up to `stride` of them between checks of
    `stop`; then `callback` gets their rows one by one.
    """
    stop = stop or Pace()
    trace = Trace() if earlier is None else Trace(earlier.rows)
    size = problem.size().double()
    trace.entries, trace.measure = size.cpu().numpy(), problem.measure
    best, best_rmse, status = x0, torch.full_like(size, math.inf), Status.MAX_ITER
    try:
        with threads():
            begun = 0 if earlier is None else len(trace) - 1
            in_memory = not isinstance(problem.V, Blocks)  # elsewhere, rules might take a pass
            if earlier is not None and in_memory and (verdict := stop(problem, x0, trace)):
                max_iter, status = 0, verdict
            tick = time.perf_counter() if started is None else started
            for look in loop(problem, solver, x0, limit=max_iter, at_most=stride, made=begun):
                if look.t == begun:
                    best = x0 = look.factors  # which the solver may have projected
                    if earlier is not None:
                        continue  # the trace has it
                rmse = (look.errors / size).sqrt()
                last = rmse[-1]
                improved = last < best_rmse
                if every(improved):  # the usual case, and the fastest
                    best, best_rmse = look.factors, last
                elif len(trace) and not some(_is_finite(look.factors, last)):
                    status = Status.NONFINITE
                    break
                else:
                    best = where(improved, look.factors, best)
                    best_rmse = torch.where(improved, last, best_rmse)
                seconds, passes = _now(problem) - tick, readings.so_far()
                trace.extend(rmse, seconds, passes - (trace.last.passes if len(trace) else 0))
                if callback is not None:
                    for row in trace.rows[-len(rmse) :]:
                        callback(row)
                if verdict := stop(problem, look.factors, trace):
                    status = verdict
                    break
                tick = _now(problem)
    except KeyboardInterrupt:
        if not len(trace):
            raise  # there is nothing to keep yet
        status = Status.INTERRUPTED
    if best is x0 and earlier is None and every(best_rmse.isinf()):  # no iteration was completed
        best_rmse = (problem.sq_error(x0) / size).sqrt()
    return Result(best, status, trace, best_rmse)


def _is_finite(x: Factors, error: Float[Tensor, "*b"]) -> Bool[Tensor, "*b"]:
    """Whether a point is finite; its error may be infinite, as at the pole of a loss."""
    if isinstance(x.W, Held):
        return error.isfinite()
    W, H = (F.isfinite().all(dim=-1).all(dim=-1) for F in x)
    return error.isfinite() | (W & H & ~error.isnan())


def _now(problem: Problem) -> float:
    if problem.V.device.type == "cuda":
        torch.cuda.synchronize(problem.V.device)
    return time.perf_counter()
