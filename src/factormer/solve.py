"""solve(): run a solver until a rule says stop; what came of it, and how it went.

The clock covers the solver alone; errors and stop rules are bookkeeping, off the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.factors import Factors, where
from factormer.problem import Problem
from factormer.solvers.base import Solver, iterate


class Status(Enum):
    """Why the iterations ended; the value is a sentence for people."""

    CONVERGED = "the tolerance was met"
    MAX_ITER = "the iteration limit was reached before the tolerance was met"
    TIME_LIMIT = "the time limit was reached before the tolerance was met"
    INTERRUPTED = "the run was interrupted; the best point so far was kept"
    NONFINITE = "the solver left the finite numbers; the best point before that was kept"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


class Row(NamedTuple):
    """One iteration in a trace; for a stack of problems the error is one number each."""

    iteration: int
    seconds: float
    rmse: Float[Tensor, "*b"]


@dataclass
class Trace:
    """The history of a run, a row an iteration, iteration 0 being the start."""

    rows: list[Row] = field(default_factory=list)

    @property
    def iteration(self) -> np.ndarray:
        """Iterations, 0 … T."""
        return np.array([row.iteration for row in self.rows])

    @property
    def seconds(self) -> np.ndarray:
        """Seconds of the solver up to each iteration, with what the start took."""
        return np.array([row.seconds for row in self.rows])

    @property
    def rmse(self) -> np.ndarray:
        """Root mean square error (eq. 23), (T + 1,) or (T + 1, *b) for a stack."""
        return torch.stack([row.rmse for row in self.rows]).cpu().numpy()

    def scaled(self, c: Float[Tensor, "*b"]) -> Trace:
        """The trace of the same run on c·V."""
        return Trace([row._replace(rmse=c * row.rmse) for row in self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def plot(self, ax: Any = None, *, x: str = "iteration", label: str | None = None) -> Any:
        """Draw error against "iteration" or "seconds" on matplotlib axes, which are returned."""
        if x not in ("iteration", "seconds"):
            raise ValueError(f"x is {x!r}; choose 'iteration' or 'seconds'")
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError(
                    "plotting needs matplotlib: pip install 'factormer[plot]'"
                ) from error
            ax = plt.gca()
        ax.semilogy(getattr(self, x), self.rmse, label=label)
        ax.set_xlabel(x)
        ax.set_ylabel("RMSE")
        return ax


@dataclass(frozen=True, eq=False)
class Result:
    """A factorisation V ≈ W Hᵀ: the best point seen, why the run ended, and its history."""

    factors: Factors
    status: Status
    trace: Trace
    as_given: Callable[[Tensor], Any] = field(default=torch.Tensor.detach, repr=False)

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
        """Error of the factors returned: the lowest of the trace."""
        best = np.fmin.reduce(self.trace.rmse)  # NaN where a member of a stack overflowed
        return float(best) if best.ndim == 0 else best

    @property
    def n_iter(self) -> int:
        """Outer iterations made."""
        return self.trace.rows[-1].iteration


StopRule = Callable[[Problem, Factors, Trace], Status | None]


@dataclass
class Stationary:
    """Stop once the projected gradient has fallen to `tol` times its size at the start.

    It means the same for every solver, and 0 never stops. Looked at every `every` iterations,
    since it costs as much as one; a stack stops when all of its members may. A fit that is exact
    up to rounding counts too: where the start is one, its gradient is noise and falls no further.
    """

    tol: float = 1e-4
    every: int = 5
    _start: Tensor | None = field(default=None, init=False, repr=False)

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        iteration = trace.rows[-1].iteration
        if not self.tol or iteration % self.every:
            return None
        size = problem.stationarity(x)
        if self._start is None or iteration == 0:
            self._start = size
        rounding = 10 * torch.finfo(size.dtype).eps * problem.mean()
        met = (size <= self.tol * self._start) | (trace.rows[-1].rmse <= rounding)
        return Status.CONVERGED if bool(met.all()) else None


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

    def rule(problem: Problem, x: Factors, trace: Trace) -> Status | None:
        return next((status for r in rules if (status := r(problem, x, trace))), None)

    return rule


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
) -> Result:
    """Iterate from x0 until `stop` says so, or for `max_iter` outer iterations.

    The best point seen is what is returned, so a solver that is not a descent method, or one that
    is interrupted (Ctrl-C) or overflows, loses nothing. `started` is a reading of
    `time.perf_counter()` from before the start was made, so that its cost is in the trace.
    """
    stop = stop or Stationary()
    states = iterate(problem, solver, x0)
    trace, seconds = Trace(), 0.0 if started is None else time.perf_counter() - started
    best, best_rmse = x0, problem.rmse(x0).fill_(math.inf)
    status = Status.MAX_ITER
    try:
        for t in range(max_iter + 1):
            tick = _now(problem)
            x = next(states).factors
            seconds += _now(problem) - tick
            rmse = problem.rmse(x)
            finite = rmse.isfinite()
            if not bool(finite.any()) and t:
                status = Status.NONFINITE
                break
            improved = rmse < best_rmse
            best, best_rmse = where(improved, x, best), torch.where(improved, rmse, best_rmse)
            trace.rows.append(Row(t, seconds, rmse))
            if callback is not None:
                callback(trace.rows[-1])
            if verdict := stop(problem, x, trace):
                status = verdict
                break
    except KeyboardInterrupt:
        if not trace.rows:
            raise  # there is nothing yet to keep
        status = Status.INTERRUPTED
    return Result(best, status, trace)


def _now(problem: Problem) -> float:
    if problem.V.device.type == "cuda":
        torch.cuda.synchronize(problem.V.device)
    return time.perf_counter()
