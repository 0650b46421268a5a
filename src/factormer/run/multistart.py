"""Several starts at once, of which fewer and fewer stay in: a better optimum for a little time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.kernels.threads import share
from factormer.problem.problem import Problem
from factormer.solvers.base import Leaping, Solver

R = TypeVar("R")
_LONG = 10**9  # work enough to wake every thread


class TournamentState(NamedTuple):
    """The states that are still in, that of the least error first, and the iterations made."""

    states: tuple[Any, ...]
    t: int

    @property
    def factors(self) -> Factors:
        return self.states[0].factors

    def sq_error(self, problem: Problem) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖² at the best point."""
        return self.states[0].sq_error(problem)


@dataclass(frozen=True)
class Tournament:
    """A solver of one matrix that sets out from `others` too, beside the point it is given.

    After each of these numbers of `rounds`, the worse half leaves. An iteration is one of each that
    is in; its point is the best of them. Since that always stays, the error never rises for
    a solver whose error does not.
    """

    solver: Solver[Any]
    others: tuple[Factors, ...]
    rounds: tuple[int, ...] = (6, 18)

    def init(self, problem: Problem, x0: Factors) -> TournamentState:
        starts = (x0, *self.others)
        return TournamentState(tuple(self.solver.init(problem, x) for x in starts), 0)

    def step(self, problem: Problem, state: TournamentState) -> TournamentState:
        def one(inner: Any) -> tuple[Any, float]:
            after = self.solver.step(problem, inner)
            return after, float(after.sq_error(problem))

        return self._ranked(_at_once(one, problem, state.states), state.t + 1)

    def leap(
        self, problem: Problem, state: TournamentState, n_iter: int
    ) -> tuple[TournamentState, Float[Tensor, " n"]]:
        """Up to `n_iter` steps at once, and no further than the end of a round, where all can."""
        if not hasattr(self.solver, "leap"):
            return state, torch.empty(0)
        left = [end - state.t for end in self.rounds if end > state.t]
        n_iter = min([n_iter, *left])
        solver = cast(Leaping[Any], self.solver)
        leapt = _at_once(lambda inner: solver.leap(problem, inner, n_iter), problem, state.states)
        if any(len(errors) < n_iter for _, errors in leapt):
            return state, torch.empty(0)
        finals = [(after, float(errors[-1])) for after, errors in leapt]
        best = torch.stack([errors for _, errors in leapt]).amin(dim=0)
        return self._ranked(finals, state.t + n_iter), best

    def adopt(self, problem: Problem, state: TournamentState, x: Factors) -> TournamentState:
        best = self.solver.adopt(problem, state.states[0], x)
        return state._replace(states=(best, *state.states[1:]))

    def _ranked(self, results: list[tuple[Any, float]], t: int) -> TournamentState:
        order = sorted(results, key=lambda result: _or_infinite(result[1]))
        stay = -(-len(order) // 2) if t in self.rounds else len(order)
        return TournamentState(tuple(inner for inner, _ in order[:stay]), t)


def _or_infinite(error: float) -> float:
    return error if error == error else float("inf")


def _at_once(f: Callable[[Any], R], problem: Problem, items: tuple[Any, ...]) -> list[R]:
    """Apply f to each item, over as many threads as there are; a GPU takes them in turn."""
    results: list[Any] = [None] * len(items)

    def some(start: int, stop: int) -> None:
        with torch.no_grad():  # which a thread does not know from another
            for k in range(start, stop):
                results[k] = f(items[k])

    share(some, len(items), work=_LONG if problem.V.device.type == "cpu" else 0)
    return results
