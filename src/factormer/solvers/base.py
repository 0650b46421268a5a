"""What a solver is, and the only loop that runs one: for solving, benchmarking and training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.problem import Problem


@runtime_checkable
class State(Protocol):
    """What a solver carries from one iteration to the next: a value, never changed in place."""

    @property
    def factors(self) -> Factors: ...
    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]: ...


class Point(NamedTuple):
    """The least a solver can carry: a point, and (VH, HᵀH) of it where the last step knew them."""

    factors: Factors
    known: Normal | None = None

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² at the point."""
        return problem.sq_error(self.factors, self.known)


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


@runtime_checkable
class Leaping(Protocol[S]):
    """A solver that can make several iterations at once, faster than one by one.

    `leap` returns the state after them and ‖W Hᵀ − V‖² after each; none where it cannot.
    """

    def leap(
        self, problem: Problem, state: S, n_iter: int
    ) -> tuple[S, Float[Tensor, " n_iter"]]: ...


def iterate(problem: Problem, solver: Solver[Any], x0: Factors) -> Iterator[Any]:
    """Yield the states x⁰, x¹, … without end; the caller decides when to stop."""
    state = solver.init(problem, x0)
    while True:
        yield state
        state = solver.step(problem, state)


def advance(
    problem: Problem, solver: Solver[Any], state: Any, n_iter: int
) -> tuple[Any, Float[Tensor, "k *b"]]:
    """Up to `n_iter` iterations at once from a solver that can, one from any other.

    Returns the state after them, and ‖W Hᵀ − V‖² after each.
    """
    if n_iter > 1 and hasattr(solver, "leap"):
        leapt, errors = cast(Leaping[Any], solver).leap(problem, state, n_iter)
        if len(errors):
            return leapt, errors
    state = solver.step(problem, state)
    return state, state.sq_error(problem)[None]
