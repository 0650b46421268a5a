"""A small matrix of counts, from its start to its end by a few compiled calls.

The twin is what `run.execute` does with the same plan. There torch takes some microseconds for each
of hundreds of small steps, which together last longer than the iterations.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from factormer import kernels
from factormer.accelerate.her import is_small_for
from factormer.accelerate.newton import ExtrapolatedNewton
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.kernels.rules import LOOK_EVERY, exact_below, has_settled
from factormer.kernels.threads import scratch
from factormer.problem.arrays import side_by_side
from factormer.problem.products import RESOLVED
from factormer.run.lifting import SHARE, Beside, Squared
from factormer.run.order import SCALES
from factormer.run.plan import Plan, View
from factormer.run.request import Request
from factormer.run.result import Result, Status
from factormer.run.stages import stride_of
from factormer.run.stop import Watch
from factormer.run.trace import Row, Trace
from factormer.solvers.hals import FLAT
from factormer.starts import Random

_EPS = float(np.finfo(float).eps)


def serves(plan: Plan) -> bool:
    """Whether a plan is: random factors, fitted to the roots of a small V, then Newton steps."""
    request, start, stage = plan.request, plan.start, plan.stages[0]
    if stage is not plan.stages[-1] or plan.kinds or not isinstance(start, Beside):
        return False
    base, limits, problem = start.base, request.limits, request.problem
    if not isinstance(base, Squared) or type(base.base) is not Random or base.on_counts:
        return False
    if limits.stop != "auto" or not limits.max_iter:
        return False
    if stage.view is not View.ITSELF or type(stage.solver) is not ExtrapolatedNewton:
        return False
    if not problem.is_free or not stage.solver.leaps(problem):
        return False
    if not is_small_for(Dense, problem.V.shape, problem.rank, float(problem.V.work())):
        return False
    ready = kernels.started_on_roots("start") is not None
    return ready and kernels.small_problems("write") is not None


def fitted(
    plan: Plan,
    seed: int | None,
    started: float,
    until: float | None = None,
    callback: Callable[[Row], object] | None = None,
    watch: Watch | None = None,
) -> Result | None:
    """A run of a plan that `serves`, up to the time `until`; the last two are those of `execute`.

    None where other code has to take more care: of huge or tiny numbers, infinite losses, and roots
    that are fitted exactly.
    """
    compiled, problem, limits = (
        kernels.started_on_roots(),
        plan.request.problem,
        plan.request.limits,
    )
    assert compiled is not None
    assert isinstance(problem.V, Dense)
    (m, n), r = problem.V.shape, problem.rank
    desk = scratch(compiled.Desk.of, m, n, r)
    if callback is not None or watch is not None:  # which may fit a matrix of this shape themselves
        desk = compiled.Desk.of(m, n, r)
    x = np.empty((m + n, r))
    mean, loss = _started(compiled, plan, seed, desk, x)
    if not loss < math.inf:
        return None
    per, unit = 2 / (m * n), math.sqrt(mean)  # of an rmse, as a divergence is proportional to V
    rmse, status, made = math.sqrt(per * max(loss, 0.0)), Status.MAX_ITER, 0
    solver: Any = plan.stages[0].solver
    run, trace = solver.run(problem, (desk.V, desk.VT), x, x.copy()), Trace()
    trace.entries, trace.measure = np.float64(m * n), problem.measure
    passes = 2 * _on_roots(plan) + 5  # mean, scale, transpose, roots, their iterations, the loss
    tick, errors, stride = started, np.array([rmse]), stride_of(plan.request)
    history = errors
    try:
        while True:
            now = time.perf_counter()
            trace.extend(torch.from_numpy(unit * errors), now - tick, passes)
            if callback is not None:
                for row in trace.rows[-len(errors) :]:
                    callback(row)
            passes = 0
            if limits.tol and (
                rmse <= exact_below(limits.tol, _EPS) or has_settled(history, limits.tol)
            ):
                status = Status.CONVERGED
                break
            if until is not None and now >= until:
                status = Status.TIME_LIMIT
                break
            if watch is not None and watch(_apart(unit * x, m), trace):
                status = Status.INTERRUPTED
                break
            if made == limits.max_iter:
                break
            tick = time.perf_counter()
            some = min(LOOK_EVERY if limits.tol else stride, limits.max_iter - made)
            errors, made = np.sqrt(per / 2 * run(some)), made + some
            passes, history = 2 * some, np.concatenate([history, errors])
            rmse = float(errors[-1])
            if not rmse < math.inf:
                return None
    except KeyboardInterrupt:
        if not len(trace):
            raise
        x = unit * x  # which may be ahead of the trace
        return Result(_apart(x, m), Status.INTERRUPTED, trace, problem.rmse(_apart(x, m)))
    error = torch.from_numpy(np.array(unit * rmse))  # the fastest way there
    return Result(_apart(unit * x, m), status, trace, error)


def _apart(x: np.ndarray, m: int) -> Factors:
    both = torch.from_numpy(x)
    return Factors(both[:m], both[m:])


def _started(
    compiled: Any, plan: Plan, seed: int | None, desk: Any, x: np.ndarray
) -> tuple[float, float]:
    """Write the start to x; returns the mean of V, and the loss on V over it."""
    loops, restart, start = kernels.compiled("extrapolated"), kernels.restarting(), plan.start
    assert loops is not None
    assert restart is not None
    assert isinstance(start, Beside)
    assert isinstance(start.base, Squared)
    V, r, fit = plan.request.problem.V, plan.request.problem.rank, start.base.solver
    assert isinstance(V, Dense)
    m, n = V.shape
    sweeps = [fit.solver.sweeps(*shape, r, float(m * n)) for shape in ((m, n), (n, m))]
    digits = RESOLVED[torch.float64], FLAT[torch.float64]
    rules = compiled.Rules(*sweeps, *digits, float(fit.accelerator.beta), SHARE)
    return compiled.start()(
        V.entries.contiguous().numpy(),
        _seed(seed),
        loops.parts(),
        loops.address_of_iterations(),
        restart.Rates(*fit.accelerator.rates),
        rules,
        np.empty(start.base.on_roots),
        desk,
        x,
    )


def _seed(seed: int | None) -> np.uint64:
    return np.uint64(torch.Generator().seed() % 2**63 if seed is None else seed % 2**64)


def _on_roots(plan: Plan) -> int:
    start: Any = plan.start
    return start.base.on_roots


def tidied(result: Result, request: Request) -> Result:
    """Components in order and to scale: the twin is `run.order.canonical`."""
    compiled, (m, r), n = kernels.small_problems(), result.factors.W.shape, len(result.factors.H)
    assert compiled is not None
    W, H, kept = np.empty((m, r)), np.empty((n, r)), side_by_side(result.factors)
    ends = request.order is not None, SCALES[request.scale]
    compiled.write()(kept, 1.0, *ends, W, H, np.empty((3, r)))
    return replace(result, factors=Factors(torch.from_numpy(W), torch.from_numpy(H)))
