"""The protocol of solvers; `solvers.loop` runs them."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.problem import Problem


@runtime_checkable
class State(Protocol):
    """The state of a solver between two iterations: a value, never changed in place."""

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

    `leap` returns the state after them and ‖W Hᵀ − V‖² after each: none where it cannot, and fewer
    where it has to end early. A leap of a and one of b equal a leap of a + b, bit for bit.
    """

    def leap(self, problem: Problem, state: S, n_iter: int) -> tuple[S, Float[Tensor, "k *b"]]: ...
