"""solve(): run a solver until a rule says stop; what came of it, and how it went.

The clock covers the solver alone; errors and stop rules are bookkeeping, off the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.data import n_entries
from factormer.data.factors import Factors, every, some, where
from factormer.kernels.threads import threads
from factormer.problem.problem import Problem
from factormer.run.trace import Row, Trace, objective
from factormer.solvers.base import Solver
from factormer.solvers.loop import loop


class Status(Enum):
    """Why the iterations ended; the value is a sentence for people."""

    CONVERGED = "the tolerance was met"
    MAX_ITER = "the iteration limit was reached before the tolerance was met"
    TIME_LIMIT = "the time limit was reached before the tolerance was met"
    INTERRUPTED = "the run was interrupted; the best point so far was kept"
    NONFINITE = "the solver left the finite numbers; the best point before that was kept"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A factorization V ≈ W Hᵀ: the best point seen, why the run ended, and its history."""

    factors: Factors
    status: Status
    trace: Trace
    error: Float[Tensor, "*b"]
    as_given: Callable[[Tensor], Any] = field(default=torch.Tensor.detach, repr=False)
    plan: Any = field(default=None, repr=False)  # in words: what was chosen, and why

    def __repr__(self) -> str:
        *batch, m, r = self.factors.W.shape
        n = self.factors.H.shape[-2]
        error = f"RMSE {self.rmse:.4g}" if not batch else f"RMSE up to {np.max(self.rmse):.4g}"
        many = f"{'×'.join(map(str, batch))} of " if batch else ""
        seconds = self.trace.seconds[-1] if len(self.trace) else 0.0
        return (
            f"<Result: {many}{m}×{n} at rank {r}, {error}, {self.n_iter} iterations in "
            f"{seconds:.2g} s, {self.status.name}>"
        )

    @property
    def W(self) -> Any:
        """Left factor (m, r), an array of the kind that V was."""
        return self.as_given(self.factors.W)

    @property
    def H(self) -> Any:
        """Right factor (n, r), an array of the kind that V was."""
        return self.as_given(self.factors.H)

    @property
    def rmse(self) -> float | np.ndarray:
        """Root mean square error of the factors returned."""
        return self.error.item() if self.error.dim() == 0 else self.error.cpu().numpy()

    @property
    def loss(self) -> float | np.ndarray:
        """The objective at the factors returned: ½‖W Hᵀ − V‖², or what was minimised instead."""
        return objective(self.rmse, self.trace.entries)

    @property
    def n_iter(self) -> int:
        """Outer iterations made."""
        return len(self.trace) - 1


_LOOKS = 5  # looks in a row that see no gain before rounding is thought to be all that is left

StopRule = Callable[[Problem, Factors, Trace], Status | None]
Watch = Callable[[Factors, Trace], bool]  # told every few iterations; says whether to stop


@dataclass
class Stationary:
    """Stop once the projected gradient has fallen to `tol` times its size at the start.

    It means the same for every solver, and 0 never stops. Looked at every `every` iterations,
    since it costs as much as one; a stack stops when all of its members may. What the precision of
    V cannot tell from that counts too: a fit that is exact up to rounding, and one whose error no
    longer falls while its gradient is as small as rounding leaves it.
    """

    tol: float = 1e-4
    every: int = 10
    _start: Tensor | None = field(default=None, init=False, repr=False)
    _is_measure: bool = field(default=False, init=False, repr=False)
    _mean: Tensor | float = field(default=1.0, init=False, repr=False)
    _errors: list[Tensor] = field(default_factory=list, init=False, repr=False)

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        if not self.tol or (iteration := trace.last.iteration) % self.every:
            return None
        size, error, eps = problem.stationarity(x), trace.last.rmse, torch.finfo(x.W.dtype).eps
        if self._start is None or iteration == 0:
            self._start, self._errors = size, []
            self._mean, self._is_measure = problem.mean(), False
        met = size <= self.tol * self._start
        if not self._is_measure:  # as a start that is out of all bounds is none
            finite = self._start.isfinite()
            met, self._is_measure = met & finite, every(finite)
            self._start = torch.where(finite, self._start, size)
        met |= error <= 10 * eps * self._mean
        self._errors = [*self._errors[-_LOOKS:], error]
        if len(self._errors) > _LOOKS:
            stalled = self._errors[0] - error <= 4 * eps * error
            met |= stalled & (size <= 10 * math.sqrt(eps) * self._start)
        return Status.CONVERGED if every(met) else None


@dataclass(frozen=True)
class TimeBudget:
    """Stop once so many seconds have passed `since` a reading of `time.perf_counter()`."""

    seconds: float
    since: float = field(default_factory=time.perf_counter)

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        late = time.perf_counter() - self.since >= self.seconds
        return Status.TIME_LIMIT if late else None


def any_of(*rules: StopRule) -> StopRule:
    """Stop as soon as one of the rules says so; the first named one gives the status."""
    if len(rules) == 1:
        return rules[0]

    def rule(problem: Problem, x: Factors, trace: Trace) -> Status | None:
        return next((status for r in rules if (status := r(problem, x, trace))), None)

    return rule


def watched(watch: Watch, mean: Float[Tensor, "*b"], unit: Float[Tensor, "*b"]) -> StopRule:
    """Stop where somebody who looks on says so; V was divided by `mean`, its errors by `unit`."""

    def rule(problem: Problem, x: Factors, trace: Trace) -> Status | None:
        seen = problem.scaled_back(x, mean)
        return Status.INTERRUPTED if watch(seen, trace.scaled(unit)) else None

    return rule


@dataclass(frozen=True)
class Stalled:
    """Stop once the error has fallen by less than `share` an iteration, over a few of them.

    What ends the work on a compressed problem, whose optimum is not quite the one looked for.
    """

    share: float = 1e-4
    over: int = 5

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        if len(trace) <= self.over:
            return None
        before, now = trace.rows[-1 - self.over].rmse, trace.rows[-1].rmse
        stalled = now >= (1 - self.share * self.over) * before
        return Status.CONVERGED if every(stalled) else None


@dataclass(frozen=True)
class Rounding:
    """Stop once an iteration lowers ‖W Hᵀ − V‖² by no more than `share` of ‖V‖², or it is small.

    What ends the work in float32, before rounding can tell on its decisions.
    """

    share: float = 1e-6
    small: float = 1e-2

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        norm = problem.V.sq_norm() / n_entries(problem.V)
        now = trace.rows[-1].rmse ** 2
        done = now <= self.small * norm
        if len(trace) > 1:
            done |= trace.rows[-2].rmse ** 2 - now <= self.share * norm
        return Status.CONVERGED if every(done) else None


@dataclass(frozen=True)
class Slowing:
    """Stop once an iteration lowers the objective by no more than `share` of it."""

    share: float = 1e-4

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        if len(trace) < 4:
            return None
        before, now = trace.rows[-3].rmse ** 2, trace.rows[-1].rmse ** 2
        return Status.CONVERGED if every(before - now <= 2 * self.share * before) else None


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

    The best point seen is what is returned, so a solver that is not a descent method, or one that
    is interrupted (Ctrl-C) or overflows, loses nothing. `started` is a reading of
    `time.perf_counter()` from before the start was made, so that its cost is in the trace. With the
    trace of an `earlier` run that ended at x0, the iterations are counted on from there, and the
    error is infinite where none was made. A solver that can make many iterations at once is asked
    for up to `stride` of them between looks at `stop`; then `callback` gets their rows one by one.
    """
    stop = stop or Stationary()
    trace = Trace() if earlier is None else Trace(earlier.rows)
    size = problem.size().double()
    trace.entries = size.cpu().numpy()
    best, best_rmse, status = x0, torch.full_like(size, math.inf), Status.MAX_ITER
    try:
        with threads():
            begun = 0 if earlier is None else len(trace) - 1
            if earlier is not None and (verdict := stop(problem, x0, trace)):
                max_iter, status = 0, verdict
            tick = time.perf_counter() if started is None else started
            for look in loop(problem, solver, x0, limit=max_iter, at_most=stride, made=begun):
                if look.t == begun:
                    best = x0 = look.factors  # which may have been brought into a set
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
                trace.extend(rmse, _now(problem) - tick)
                if callback is not None:
                    for row in trace.rows[-len(rmse) :]:
                        callback(row)
                if verdict := stop(problem, look.factors, trace):
                    status = verdict
                    break
                tick = _now(problem)
    except KeyboardInterrupt:
        if not len(trace):
            raise  # there is nothing yet to keep
        status = Status.INTERRUPTED
    if best is x0 and earlier is None and every(best_rmse.isinf()):  # no iteration was ended
        best_rmse = (problem.sq_error(x0) / size).sqrt()
    return Result(best, status, trace, best_rmse)


class Stage(NamedTuple):
    """A problem to work on with a solver, until its own stop rule or this iteration.

    `exact` says whether its errors are those of the problem that is to be solved.
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
        result = solve(
            stage.problem,
            stage.solver,
            stage.problem.taken(x),
            stop=stage.stop,
            max_iter=stage.max_iter,
            started=started if result is None else None,
            callback=callback,
            earlier=None if result is None else result.trace,
            stride=stride if stage is last else min(stride, 10),  # others end by their rules
        )
        over = result.status not in (Status.CONVERGED, Status.MAX_ITER)
        if over or stage is last or result.n_iter >= last.max_iter:
            break
    else:
        raise AssertionError("the last stage always breaks")
    last = last.problem
    x, error = last.taken(result.factors), result.error
    exact = stage.exact and stage.problem.V.dtype == last.V.dtype
    if not exact or some((error <= last.blurred()) | error.isinf()):
        error = last.rmse(x)
    return replace(result, factors=x, error=error)


def _is_finite(x: Factors, error: Float[Tensor, "*b"]) -> Bool[Tensor, "*b"]:
    """Whether a point has numbers alone; its error may be infinite, as at the pole of a loss."""
    W, H = (F.isfinite().all(dim=-1).all(dim=-1) for F in x)
    return error.isfinite() | (W & H & ~error.isnan())


def _now(problem: Problem) -> float:
    if problem.V.device.type == "cuda":
        torch.cuda.synchronize(problem.V.device)
    return time.perf_counter()
