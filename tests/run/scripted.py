"""A solver that follows a script, a clock that stands still, and a rule that never stops."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.run.result import Result
from factormer.run.solve import solve
from factormer.run.stop import Stationary

NEVER = Stationary(tol=0.0)


class ScriptedState(NamedTuple):
    """A point and how many iterations led to it."""

    factors: Factors
    t: int

    def sq_error(self, problem: Problem) -> Tensor:
        return problem.V.sq_error(self.factors)


class Scripted:
    """Goes through given values of W, (T + 1, *b), with H = 1; a step takes two seconds."""

    def __init__(self, values: Any, clock: "Clock | None" = None):
        self.values = torch.tensor(values, dtype=torch.float64)
        self.clock = clock

    def point(self, t: int) -> Factors:
        W = self.values[t][..., None, None]
        return Factors(W, torch.ones_like(W))

    def init(self, problem: Problem, x0: Factors) -> ScriptedState:
        return ScriptedState(x0, 0)

    def step(self, problem: Problem, state: ScriptedState) -> ScriptedState:
        if self.clock is not None:
            self.clock.now += 2.0
        return ScriptedState(self.point(state.t + 1), state.t + 1)

    def adopt(self, problem: Problem, state: ScriptedState, x: Factors) -> ScriptedState:
        return ScriptedState(x, state.t)

    def run(self, **options: Any) -> Result:
        """Solve V = 1, so that the error is |W − 1|, along the whole script."""
        V = Dense(torch.ones(*self.values.shape[1:], 1, 1, dtype=torch.float64))
        options = {"stop": NEVER, "max_iter": len(self.values) - 1} | options
        return solve(Problem(V, 1), self, self.point(0), **options)


def point(w: float) -> Factors:
    return Factors(*(torch.full((1, 1), value, dtype=torch.float64) for value in (w, 1.0)))


class Clock:
    """A `time.perf_counter` that stands still unless told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
