"""Replicates of one V on a CPU: their factors lie side by side, so that a reading of V serves all.

Single precision first, then that of V, as a single call does where V is large.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from factormer import kernels
from factormer.accelerate.her import HER
from factormer.accelerate.lines import Lines
from factormer.data import Dense, Sparse
from factormer.data.factors import Factors
from factormer.kernels.rules import EVERY
from factormer.many.ends import EXACT, Ended, outcome, random_start, settle
from factormer.many.jobs import Jobs
from factormer.many.results import Outcome
from factormer.problem.problem import Problem
from factormer.run.plan import Explanation, Plan, View
from factormer.run.result import Status
from factormer.run.stop import Looks
from factormer.starts import Random

_ASKED = [("auto", "auto"), ("auto", None), ("her", "auto"), ("her", None)]
_ROUNDING, _SMALL = 1e-6, 1e-2  # as in `Rounding`
_LEAST = 1e-100  # mean of V, or its inverse, beyond which single calls take more care
_WIDE = 256  # columns side by side from which products are hardly faster
_PAUSE = 5e9  # multiplications up to which nobody looks at the clock
_ROOM = 2**24  # numbers in the points of all problems that lie side by side
_LONG = 100_000  # iterations whose errors are kept
_SAYS = "HALS, extrapolated with restart; replicates side by side share each reading of V"


def serves(plan: Plan) -> bool:
    """Whether replicates can share this plan: least squares from a random start, on a CPU."""
    request, problem = plan.request, plan.request.problem
    if not (problem.is_plain and isinstance(problem.V, Dense | Sparse)) or request.is_symmetric:
        return False
    if (
        plan.n_runs > 1
        or not isinstance(plan.start, Random)
        or not 0 < request.limits.max_iter <= _LONG
    ):
        return False
    if request.limits.stop != "gradient":
        return False
    if problem.V.device.type != "cpu" or (request.solver, request.accelerator) not in _ASKED:
        return False
    return kernels.shared_products("ready") is not None


def width(V: Dense | Sparse, rank: int) -> int:
    """How many problems of this rank lie side by side: so many that products are fast."""
    m, n = V.shape
    columns = min(_WIDE, _PAUSE / (2 * float(V.work()) + 1), _ROOM / (m + n))
    return max(1, int(columns / rank))


@dataclass(eq=False)
class _Run:
    """A problem under way: its job, point [Wᵀ, Hᵀ], squared errors, and first gradient."""

    index: int
    x: np.ndarray
    errors: list[float] = field(default_factory=list)
    looks: Looks | None = None
    status: Status = Status.MAX_ITER
    error: float = math.nan  # of the point, where it is known with all digits
    is_settled: bool = False


def factorized(
    jobs: Jobs, chunk: list[int], is_over: Callable[[], bool]
) -> dict[int, Outcome | None]:
    """The outcomes of jobs with one V and one rank; None where a single call has more digits."""
    begun, plan = time.perf_counter(), jobs.plan(chunk[0])
    problem = Problem(jobs.source(int(jobs.problem[chunk[0]])), int(jobs.rank[chunk[0]]))
    scaled, mean = problem.normalized()
    V, (m, n), r, unit = scaled.V, scaled.V.shape, problem.rank, float(mean)
    assert isinstance(V, Dense | Sparse)
    if not _LEAST < unit < 1 / _LEAST:
        return dict.fromkeys(chunk)
    level, count = float(scaled.mean()), min(width(V, r), len(chunk))
    runs = [_Run(k, random_start(m, n, r, level, int(jobs.seed[k]))) for k in chunk]
    for dtype in (torch.float32, V.dtype)[V.dtype == torch.float32 :]:
        stage = _Stage(Lines(V, dtype, r, HER(), count), plan, is_last=dtype == V.dtype)
        runs = list(stage.carried_out(runs, is_over))
    seconds = (time.perf_counter() - begun) / len(chunk)
    said, done = _said(plan, V), dict[int, Outcome | None]()
    for run in runs:
        ended = _ended(V, run, plan, seconds)
        made = None if ended is None else outcome(jobs, run.index, plan, said, ended, unit, m)
        done[run.index] = made
    return done


def _said(plan: Plan, V: Dense | Sparse) -> Explanation:
    """Return the plan in words, as this file carries it out."""
    views = [View.ITSELF] if V.dtype == torch.float32 else [View.SINGLE, View.ITSELF]
    return plan.carried_out(None, *(f"her on {view.value}: {_SAYS}" for view in views))


class _Stage:
    """Runs in one precision, until each may stop; those that end make room for others."""

    def __init__(self, lines: Lines, plan: Plan, *, is_last: bool) -> None:
        self._lines, self._limits, self._is_last = lines, plan.request.limits, is_last
        self._settles, self._entries = is_last and plan.settles, math.prod(lines.V.shape)
        self._eps, self._runs = torch.finfo(lines.V.dtype).eps, list[_Run]()

    def carried_out(self, waiting: list[_Run], is_over: Callable[[], bool]) -> Iterator[_Run]:
        """Runs as they end; once it is over all others, as far as they have come."""
        lines, waiting = self._lines, waiting[::-1]
        while waiting or self._runs:
            first = len(lines)
            while waiting and not lines.is_full:
                lines.enter(waiting[-1].x)
                self._runs.append(waiting.pop())
            yield from self._looked(first)
            if self._iterated(is_over):
                yield from self._looked(0)
                continue
            for k in reversed(range(len(lines))):
                self._runs[k].x = lines.leave(k)
            for run in (*self._runs, *waiting):
                run.status = Status.TIME_LIMIT
                yield run
            return

    def _iterated(self, is_over: Callable[[], bool]) -> bool:
        """Whether there was time for the iterations up to the next look."""
        left = [self._limits.max_iter + 1 - len(run.errors) for run in self._runs]
        for _ in range(min(EVERY, *left) if left else 0):
            if is_over():
                return False
            for run, error, is_resolved in zip(self._runs, *self._lines.iterate(), strict=True):
                if is_resolved:
                    run.errors.append(float(error))
                else:
                    run.status = Status.NONFINITE
        return True

    def _looked(self, first: int) -> Iterator[_Run]:
        """Look at the runs from place `first` on, and let those leave that may."""
        if first == len(self._lines):
            return
        errors, slopes, norms = self._lines.look(first)
        for k in reversed(range(first, len(self._lines))):
            run = self._runs[k]
            run.errors = run.errors or [float(errors[k - first])]
            if self._goes_on(run, float(slopes[k - first]), float(norms[k - first])):
                continue
            run.error = float(errors[k - first])
            if self._settles and run.status is not Status.NONFINITE:
                run.is_settled, run.error = self._lines.settle(k)
            run.x = self._lines.leave(k)
            self._runs[k] = self._runs[-1]
            self._runs.pop()
            yield run

    def _goes_on(self, run: _Run, slope: float, norms: float) -> bool:
        """Whether a run is to go on here; else `status` says why not."""
        norm, error = self._lines.sq_norm, run.errors[-1]
        if run.status is Status.NONFINITE:
            if not self._is_last:
                run.status = Status.MAX_ITER
            return False
        looks = run.looks = run.looks or Looks(self._limits.tol, self._eps)
        looks.eps, rmse = self._eps, math.sqrt(max(error, 0.0) / self._entries)
        if looks.is_over(slope, rmse, norms=norms):
            run.status = Status.CONVERGED if self._is_last else Status.MAX_ITER
            return False
        if not self._is_last and len(run.errors) > 1:
            gained = run.errors[-2] - error
            if gained <= _ROUNDING * norm or error <= _SMALL * norm:
                return False
        return len(run.errors) <= self._limits.max_iter


def _ended(V: Dense | Sparse, run: _Run, plan: Plan, seconds: float) -> Ended | None:
    """How a run ended; None where its error is too small for what is done here."""
    m, size, norm = V.shape[0], math.prod(V.shape), float(V.sq_norm())
    if run.status is Status.NONFINITE:
        return None
    if plan.settles and run.status is not Status.TIME_LIMIT and not run.is_settled:
        settle(V, run.x)
        run.error = math.nan
    if not run.error > EXACT * norm or V.dtype == torch.float32:
        W, H = (torch.from_numpy(F.T.copy()).to(V.dtype) for F in (run.x[:, :m], run.x[:, m:]))
        run.error = float(V.sq_error(Factors(W, H)))
    if run.error < EXACT**2 * norm:
        return None
    if not run.errors:  # time was up before the run was entered, and the point is its start
        run.errors = [run.error]
    history = np.sqrt(np.maximum(run.errors, 0.0) / size)
    return Ended(run.x, math.sqrt(run.error / size), history, run.status, seconds)
