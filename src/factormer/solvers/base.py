"""What a solver is, and the only loop that runs one: for solving, benchmarking and training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

from factormer.factors import Factors
from factormer.problem import Problem


@runtime_checkable
class State(Protocol):
    """What a solver carries from one iteration to the next: a value, never changed in place."""

    @property
    def factors(self) -> Factors: ...


S = TypeVar("S", bound=State)


@runtime_checkable
class Solver(Protocol[S]):
    """Frozen options and three pure functions of a state.

    One `step` is one outer iteration: an H update and a W update. `adopt` says what survives when
    the factors change under the solver (ADMM keeps its duals, momentum is dropped).
    """

    def init(self, problem: Problem, x0: Factors) -> S: ...
    def step(self, problem: Problem, state: S) -> S: ...
    def adopt(self, problem: Problem, state: S, x: Factors) -> S: ...


def iterate(problem: Problem, solver: Solver[Any], x0: Factors) -> Iterator[Any]:
    """Yield the states x⁰, x¹, … without end; the caller decides when to stop."""
    state = solver.init(problem, x0)
    while True:
        yield state
        state = solver.step(problem, state)
