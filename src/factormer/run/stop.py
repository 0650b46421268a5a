"""Stop rules: called after each look at a run, they return a Status to end it, or None."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.passes import whole
from factormer.data import Blocks, Matrix, n_entries
from factormer.data.factors import Factors, every
from factormer.data.held import Held
from factormer.data.spread import Spread
from factormer.kernels.rules import EVERY, LOOKS, NEAR_END, is_over
from factormer.problem.problem import Problem
from factormer.run.result import Status
from factormer.run.trace import Trace

StopRule = Callable[[Problem, Factors, Trace], Status | None]
Watch = Callable[[Factors, Trace], bool]  # called every few iterations; returns whether to stop


@dataclass
class Stationary:
    """Stop once the projected gradient has fallen to `tol` times its size at the start.

    It means the same for every solver, and 0 never stops. It is checked every `every` iterations,
    since it costs as much as one; a stack stops when all of its members may. Three more ends count
    as convergence: a fit that is exact up to rounding, a gradient that is nothing but rounding
    errors (at rank 1 that of the leading singular vectors is, so that no share of it can be
    reached), and an error that no longer falls while the gradient is nearly as small as that. A
    `reference` is the gradient to compare with, if it is larger: that of a start from far, where
    this one is near the end already.
    """

    tol: float = 1e-4
    every: int = EVERY
    reference: Tensor | None = None
    gap: float = field(default=math.nan, init=False)  # how many times too large it is
    _start: Tensor | None = field(default=None, init=False, repr=False)
    _is_measure: bool = field(default=False, init=False, repr=False)
    _mean: Tensor = field(init=False, repr=False, compare=False)
    _errors: list[Tensor] = field(default_factory=list, init=False, repr=False)

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        if not self.tol or not self._is_due(problem, x, iteration := trace.last.iteration):
            return None
        size, error, eps = problem.stationarity(x), trace.last.rmse, torch.finfo(x.W.dtype).eps
        if self._start is None or iteration == 0:
            known = self.reference
            self._start = size if known is None else torch.maximum(size, known.to(size))
            self._errors = []
            self._mean, self._is_measure = problem.mean(), False
        start = self._start
        if not self._is_measure:  # a start whose gradient overflows is no reference
            finite = start.isfinite()
            self._is_measure = every(finite)
            start = torch.where(finite, start, math.nan)
            self._start = torch.where(finite, self._start, size)
        if size.dim() == 0 and isinstance(problem.V, Blocks):
            self.gap = float(size / (self.tol * self._start))
        norms = torch.zeros_like(error)
        if problem.is_plain and not isinstance(problem.V, Blocks):
            W, H = (F.double().square().sum(dim=(-2, -1)).sqrt() for F in x)
            norms = problem.V.sq_norm().sqrt() * (W + H)
        self._errors = [*self._errors[-LOOKS:], error]
        before = self._errors[0] if len(self._errors) > LOOKS else error + math.inf
        met = is_over(self.tol, eps, size, start, error, before, self._mean, norms)
        if isinstance(problem.V, Blocks) and len(self._errors) > 2:  # where a look is a whole pass
            stalled = self._errors[-3] - error <= 16 * eps * error
            met |= stalled & (size <= NEAR_END * math.sqrt(eps) * self._start)
        return Status.CONVERGED if every(met) else None

    def _is_due(self, problem: Problem, x: Factors, iteration: int) -> bool:
        """Whether to check now: also if the last pass over data beyond memory left the gradient."""
        V = problem.V
        return iteration % self.every == 0 or (isinstance(V, Blocks) and V.knows(x))


@dataclass(frozen=True)
class Decrease:
    """Stop once ten iterations lower the error by less than `tol` times the error at the start.

    The error is √(2·objective / entries). What scikit-learn's multiplicative updates mean by their
    tolerance; it says less about how near the end is. 0 never stops.
    """

    tol: float = 1e-4
    every: int = EVERY

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        if not self.tol or trace.last.iteration % self.every or len(trace) <= self.every:
            return None
        first, before, now = (trace.rows[k].rmse for k in (0, -1 - self.every, -1))
        return Status.CONVERGED if every(before - now < self.tol * first) else None


@dataclass(frozen=True)
class TimeBudget:
    """Stop once `seconds` have passed `since` a reading of `time.perf_counter()`."""

    seconds: float
    since: float = field(default_factory=time.perf_counter)

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        late = time.perf_counter() - self.since >= self.seconds
        return Status.TIME_LIMIT if late else None


class Looks:
    """The rule of `Stationary` for one run, in plain numbers."""

    def __init__(self, tol: float, eps: float) -> None:
        self.tol, self.eps, self.start, self.errors = tol, eps, math.nan, list[float]()

    def is_over(self, size: float, error: float, *, level: float = 1.0, norms: float = 0.0) -> bool:
        """Return whether the run may end at this look; arguments as in `kernels.rules.is_over`."""
        if not math.isfinite(self.start):
            self.start = size
        self.errors = [*self.errors[-LOOKS:], error]
        before = self.errors[0] if len(self.errors) > LOOKS else math.inf
        if not self.tol:
            return False
        return is_over(self.tol, self.eps, size, self.start, error, before, level, norms)


def any_of(*rules: StopRule) -> StopRule:
    """Stop as soon as one of the rules does; the first in order gives the status."""
    if len(rules) == 1:
        return rules[0]

    def rule(problem: Problem, x: Factors, trace: Trace) -> Status | None:
        return next((status for r in rules if (status := r(problem, x, trace))), None)

    return rule


def not_before(iteration: int, rule: StopRule) -> StopRule:
    """The rule, whose convergence does not count before that iteration."""
    if not iteration:
        return rule

    def later(problem: Problem, x: Factors, trace: Trace) -> Status | None:
        status = rule(problem, x, trace)
        early = status is Status.CONVERGED and trace.last.iteration < iteration
        return None if early else status

    return later


@dataclass(frozen=True)
class Glance:
    """A watch that does not look at W, for which no rows of W have to travel."""

    watch: Watch

    def __call__(self, x: Factors, trace: Trace) -> bool:
        return self.watch(x, trace)


def watched(
    watch: Watch, V: Matrix, mean: Float[Tensor, "*b"], unit: Float[Tensor, "*b"]
) -> StopRule:
    """Stop if `watch` returns True; V was divided by `mean`, its errors by `unit`.

    It sees all rows of W, which are gathered each time where they stay on Dask workers; a `Glance`
    sees those of a sample.
    """

    def rule(problem: Problem, x: Factors, trace: Trace) -> Status | None:
        if isinstance(watch, Glance):
            x = Factors(x.W.few, x.H) if isinstance(x.W, Held) else x
        elif isinstance(V, Spread):
            x = V.gathered(whole(V, x))
        seen = problem.scaled_back(x, mean)
        return Status.INTERRUPTED if watch(seen, trace.scaled(unit)) else None

    return rule


@dataclass(frozen=True)
class Stalled:
    """Stop once the error has fallen by less than `share` an iteration, over a few of them.

    For compressed problems, whose optimum is only near that of V.
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

    For stages in float32, which end before rounding errors affect their decisions.
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
