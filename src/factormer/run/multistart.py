"""Several starts at once, of which the worse half is dropped again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.kernels.threads import share
from factormer.problem.problem import Problem
from factormer.solvers.base import Solver
from factormer.solvers.loop import Look, go_on

R = TypeVar("R")
_LONG = 10**9  # work enough to wake every thread


class TournamentState(NamedTuple):
    """The remaining states, which of them has the least error, and the iterations made."""

    states: tuple[Any, ...]
    best: int
    t: int

    @property
    def factors(self) -> Factors:
        return self.states[self.best].factors

    def sq_error(self, problem: Problem) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖² at the best point."""
        return self.states[self.best].sq_error(problem)


@dataclass(frozen=True)
class Tournament:
    """A solver of one matrix that starts from `others` too, besides the given point.

    After each number of iterations in `rounds`, the worse half is dropped. An iteration is one of
    each remaining state; its point is the best of them, which always stays: the error never rises
    if that of the solver does not.
    """

    solver: Solver[Any]
    others: tuple[Factors, ...]
    rounds: tuple[int, ...] = (6, 18)

    def init(self, problem: Problem, x0: Factors) -> TournamentState:
        starts = (x0, *self.others)
        return TournamentState(tuple(self.solver.init(problem, x) for x in starts), 0, 0)

    def step(self, problem: Problem, state: TournamentState) -> TournamentState:
        return self.leap(problem, state, 1)[0]

    def leap(
        self, problem: Problem, state: TournamentState, n_iter: int
    ) -> tuple[TournamentState, Float[Tensor, " n"]]:
        """Up to `n_iter` iterations of each at once, and no further than the end of a round."""
        n_iter = min([n_iter, *(end - state.t for end in self.rounds if end > state.t)])

        def on(look: Look, limit: int) -> Iterator[Look]:
            return islice(
                go_on(problem, self.solver, look.state, limit=limit, at_most=n_iter, made=look.t),
                *(1, None),
            )

        here = [Look(problem, inner, 0) for inner in state.states]
        first = _at_once(lambda look: next(on(look, n_iter)), problem, here)
        made = max(look.t for look in first)  # states that made a shorter leap catch up
        runs = _at_once(lambda look: [look, *on(look, made)], problem, first)
        errors = torch.stack([torch.cat([look.errors for look in looks]) for looks in runs])
        errors = torch.where(errors.isnan(), torch.inf, errors)  # (states, made)
        return self._after([looks[-1].state for looks in runs], errors, state.t + made)

    def _after(
        self, states: list[Any], errors: Float[Tensor, "k n"], t: int
    ) -> tuple[TournamentState, Float[Tensor, " n"]]:
        order = errors[:, -1].argsort(stable=True).tolist()
        stay = sorted(order[: -(-len(order) // 2)] if t in self.rounds else order)
        inner = tuple(states[k] for k in stay)
        return TournamentState(inner, stay.index(order[0]), t), errors.amin(dim=0)

    def adopt(self, problem: Problem, state: TournamentState, x: Factors) -> TournamentState:
        states = list(state.states)
        states[state.best] = self.solver.adopt(problem, states[state.best], x)
        return state._replace(states=tuple(states))


def _at_once(f: Callable[[Any], R], problem: Problem, items: Sequence[Any]) -> list[R]:
    """Apply f to each item, over as many threads as there are; a GPU takes them in turn."""
    results: list[Any] = [None] * len(items)

    def some(start: int, stop: int) -> None:
        with torch.no_grad():  # which is a setting of each thread
            for k in range(start, stop):
                results[k] = f(items[k])

    share(some, len(items), work=_LONG if problem.V.device.type == "cpu" else 0)
    return results
