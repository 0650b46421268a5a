"""Stop rules: called after each look at a run, they return a Status to end it, or None."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.passes import whole
from factormer.data import Blocks, Matrix, n_entries
from factormer.data.factors import Factors, every
from factormer.data.held import Held
from factormer.data.spread import Spread
from factormer.kernels.rules import EXACT, exact_below, has_settled
from factormer.problem.problem import Problem
from factormer.run.result import Status
from factormer.run.trace import Trace

EVERY = 10  # iterations between two looks at the gradient
LOOKS = 5  # looks in a row without gain after which only rounding errors seem to be left
NOISE = 4  # times ε‖V‖(‖W‖ + ‖H‖): a gradient that may be nothing but rounding errors (measured)
STALLED = 4  # times ε times the error: a fall of the error that is rounding
NEAR_END = 10  # times √ε times the gradient at the start: where an error that stalls is an end

StopRule = Callable[[Problem, Factors, Trace], Status | None]
Watch = Callable[[Factors, Trace], bool]  # called every few iterations; returns whether to stop


class Pace:
    """Stop once half as many iterations again would gain no more than `tol` of the error.

    The gain is judged by the pace of the last 15 % of the run (`kernels.rules.has_settled`), so the
    rule is the same from every start, and needs no gradient. A fit that is exact up to rounding, or
    to a thousandth of `tol` times the mean of V, has converged as well; 0 never stops. A stack
    stops when all of its members may. Where a run goes on with another problem, as from a sketch of
    V to V, the squares of earlier errors are moved by the difference that this makes at its point.
    """

    def __init__(self, tol: float = 1e-4) -> None:
        self.tol = tol
        self._problem: Problem | None = None
        self._errors = np.empty(0)  # of 0, 1, … iterations (T + 1, *b)
        self._exact = np.empty(0)  # errors of fits that count as exact (*b)

    def __call__(self, problem: Problem, x: Factors, trace: Trace) -> Status | None:
        if not self.tol:
            return None
        if trace.last.iteration < len(self._errors) - 1:  # another run
            self._problem, self._errors = None, np.empty(0)
        later = trace.since(len(self._errors))
        if problem is not self._problem:
            if self._problem is not None:
                self._move(problem, x)
            self._problem = problem
            eps = torch.finfo(x.W.dtype).eps
            self._exact = exact_below(self.tol, eps) * problem.mean().double().cpu().numpy()
        self._errors = np.concatenate([self._errors, later]) if len(self._errors) else later
        met = (self._errors[-1] <= self._exact) | has_settled(self._errors, self.tol)
        return Status.CONVERGED if bool(np.all(met)) else None

    def _move(self, problem: Problem, x: Factors) -> None:
        now = (problem.sq_error(x) / problem.size()).double().cpu().numpy()
        squares = np.square(self._errors)
        self._errors = np.sqrt(np.maximum(squares + (now - squares[-1]), 0))


@dataclass
class Stationary:
    """Stop once the projected gradient has fallen to `tol` times its size at the start.

    This is the rule for data beyond memory, where a few passes are the whole run, and for those who
    name it; how near the end it stops depends on the start. 0 never stops. The gradient is computed
    every `every` iterations, since it costs as much as one; a stack stops when all of its members
    may. Three more ends count as convergence: a fit that is exact up to rounding, a gradient that
    is nothing but rounding errors (at rank 1 that of the leading singular vectors is, so that no
    share of it can be reached), and an error that no longer falls while the gradient is nearly as
    small as that. A `reference` is the gradient to compare with, if it is larger: that of a start
    from far, where this one is near the end already.
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
        met = (size <= self.tol * start) | (error <= EXACT * eps * self._mean)
        met |= size <= NOISE * eps * norms
        stalled = before - error <= STALLED * eps * error
        met |= stalled & (size <= NEAR_END * eps**0.5 * start)
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

    The error is √(2·objective / entries). This is what scikit-learn's multiplicative updates mean
    by their tolerance; it says less about how near the end is. 0 never stops.
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
