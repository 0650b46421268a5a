"""Several starts at once: the worse leave, and new ones are made of the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.kernels.threads import share
from factormer.problem.problem import Problem
from factormer.solvers.base import Solver
from factormer.solvers.loop import Look, go_on
from factormer.starts.merged import merge

R = TypeVar("R")
_LONG = 10**9  # work enough to wake every thread


class HalvingState(NamedTuple):
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
class Halving:
    """A solver of one matrix that starts from `others` too, besides the given point.

    After each number of iterations in `rounds`, the worse half is dropped. An iteration is one of
    each remaining state; its point is the best of them, which always stays: the error never rises
    if that of the solver does not.
    """

    solver: Solver[Any]
    others: tuple[Factors, ...]
    rounds: tuple[int, ...] = (6, 18)

    def init(self, problem: Problem, x0: Factors) -> HalvingState:
        starts = (x0, *self.others)
        return HalvingState(tuple(self.solver.init(problem, x) for x in starts), 0, 0)

    def step(self, problem: Problem, state: HalvingState) -> HalvingState:
        return self.leap(problem, state, 1)[0]

    def leap(
        self, problem: Problem, state: HalvingState, n_iter: int
    ) -> tuple[HalvingState, Float[Tensor, " n"]]:
        """Up to `n_iter` iterations of each at once, and no further than the end of a round."""
        n_iter = min([n_iter, *(end - state.t for end in self.rounds if end > state.t)])
        states, errors = _advanced(problem, self.solver, state.states, n_iter)
        return self._after(states, errors, state.t + errors.shape[1])

    def _after(
        self, states: list[Any], errors: Float[Tensor, "k n"], t: int
    ) -> tuple[HalvingState, Float[Tensor, " n"]]:
        order = errors[:, -1].argsort(stable=True).tolist()
        stay = sorted(order[: -(-len(order) // 2)] if t in self.rounds else order)
        inner = tuple(states[k] for k in stay)
        return HalvingState(inner, stay.index(order[0]), t), errors.amin(dim=0)

    def adopt(self, problem: Problem, state: HalvingState, x: Factors) -> HalvingState:
        states = list(state.states)
        states[state.best] = self.solver.adopt(problem, states[state.best], x)
        return state._replace(states=tuple(states))


class GenerationsState(NamedTuple):
    """The states, their squared errors at the last check, which of them rest, and the iteration."""

    states: tuple[Any, ...]
    errors: tuple[float, ...]
    resting: tuple[bool, ...]
    best: int
    t: int

    @property
    def factors(self) -> Factors:
        return self.states[self.best].factors

    def sq_error(self, problem: Problem) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖² at the best point."""
        return self.states[self.best].sq_error(problem)


@dataclass(frozen=True)
class Generations:
    """A solver of one matrix that starts from `others` too, and makes further starts of the best.

    After `span` iterations, when errors say which runs will end best, the two best stay, and
    `n_children` begin that are each made of two: their components together, at half their size, are
    merged in pairs (`merge`). What both found stays, and the rest is new. After another `span` the
    best goes on alone. A run whose error falls no more rests until then: it takes no time. All rest
    once a fit is exact. An iteration is one of each state that does not rest; its point is the
    best, which always stays.
    """

    solver: Solver[Any]
    others: tuple[Factors, ...]
    n_children: int
    span: int
    gain: float = 1e-4  # of the squared error, between two checks, below which a run rests
    every: int = 10  # iterations between two checks
    apart: float = 1e-4  # between the squared errors of runs that count as different
    exact: float = 1e-8  # of ‖V‖²: a squared error below which no run is worth its time

    @property
    def end(self) -> int:
        """The iteration from which on only the best is left."""
        return 2 * self.span

    def init(self, problem: Problem, x0: Factors) -> GenerationsState:
        starts = (x0, *self.others)
        return self._with([self.solver.init(problem, x) for x in starts], 0, 0)

    def step(self, problem: Problem, state: GenerationsState) -> GenerationsState:
        return self.leap(problem, state, 1)[0]

    def leap(
        self, problem: Problem, state: GenerationsState, n_iter: int
    ) -> tuple[GenerationsState, Float[Tensor, " n"]]:
        """Up to `n_iter` iterations of each at once, and no further than the next check."""
        if state.t >= self.end:
            states, errors = _advanced(problem, self.solver, state.states, n_iter)
            return state._replace(states=tuple(states), t=state.t + errors.shape[1]), errors[0]
        ends = [end - state.t for end in (self.span, self.end) if end > state.t]
        n_iter = min([n_iter, self.every - state.t % self.every, *ends])
        awake = [k for k, rests in enumerate(state.resting) if not rests]
        states, errors = list(state.states), torch.tensor(state.errors, dtype=torch.float64)
        errors = errors[:, None].repeat(1, n_iter)  # (states, n)
        if awake:
            moved, new = _advanced(problem, self.solver, [states[k] for k in awake], n_iter)
            errors = errors[:, : new.shape[1]]
            errors[awake] = new.to(errors)
            for k, inner in zip(awake, moved, strict=True):
                states[k] = inner
        t = state.t + errors.shape[1]
        now = state._replace(states=tuple(states), best=int(errors[:, -1].argmin()), t=t)
        return self._checked(problem, now, errors[:, -1]), errors.amin(dim=0)

    def adopt(self, problem: Problem, state: GenerationsState, x: Factors) -> GenerationsState:
        states, resting = list(state.states), list(state.resting)
        states[state.best] = self.solver.adopt(problem, states[state.best], x)
        resting[state.best] = False
        return state._replace(states=tuple(states), resting=tuple(resting))

    def _checked(
        self, problem: Problem, state: GenerationsState, errors: Float[Tensor, " k"]
    ) -> GenerationsState:
        """Let states rest that gain little, and a generation follow another."""
        last = [float(error) for error in errors]
        if state.t == self.end:
            return self._with([state.states[state.best]], 0, state.t)
        if state.t == self.span:
            return self._next(problem, state, last)
        if state.t % self.every:
            return state
        done = self._is_exact(problem, last)
        rests = [
            done or rest or not before - now > self.gain * now
            for rest, before, now in zip(state.resting, state.errors, last, strict=True)
        ]
        return state._replace(errors=tuple(last), resting=tuple(rests))

    def _next(
        self, problem: Problem, state: GenerationsState, errors: list[float]
    ) -> GenerationsState:
        """The two best, and what is made of the best; no more where all runs end alike."""
        parents: list[int] = []
        for k in sorted(range(len(errors)), key=lambda k: errors[k]):
            above = errors[k] - errors[parents[-1]] if parents else torch.inf
            if above > self.apart * errors[k] and errors[k] < torch.inf:
                parents.append(k)
        parents = parents[:1] if self._is_exact(problem, errors) else parents
        pairs = sorted(combinations(range(len(parents)), 2), key=lambda pair: (sum(pair), pair))
        children = [
            self.solver.init(problem, between(*(state.states[parents[k]].factors for k in pair)))
            for pair in pairs[: self.n_children]
        ]
        stay = parents[:2] or [state.best]
        return self._with([*(state.states[k] for k in stay), *children], 0, state.t)

    def _is_exact(self, problem: Problem, errors: list[float]) -> bool:
        return min(errors) <= self.exact * float(problem.V.sq_norm())

    def _with(self, states: list[Any], best: int, t: int) -> GenerationsState:
        unknown, awake = (torch.inf,) * len(states), (False,) * len(states)
        return GenerationsState(tuple(states), unknown, awake, best, t)


def between(x: Factors, y: Factors) -> Factors:
    """A point made of two: all their components, which stand for (x + y) / 2, merged in pairs."""
    both = Factors(torch.cat([x.W, y.W], dim=-1) / 2, torch.cat([x.H, y.H], dim=-1))
    return merge(both, x.W.shape[-1])


def _advanced(
    problem: Problem, solver: Solver[Any], states: Sequence[Any], n_iter: int
) -> tuple[list[Any], Float[Tensor, "k n"]]:
    """Each state after up to `n_iter` iterations, the same number for all, and their errors."""

    def on(look: Look, limit: int) -> Iterator[Look]:
        looks = go_on(problem, solver, look.state, limit=limit, at_most=n_iter, made=look.t)
        return islice(looks, 1, None)

    here = [Look(problem, inner, 0) for inner in states]
    first = at_once(lambda look: next(on(look, n_iter)), problem, here)
    made = max(look.t for look in first)  # states that made a shorter leap catch up
    runs = at_once(lambda look: [look, *on(look, made)], problem, first)
    errors = torch.stack([torch.cat([look.errors for look in looks]) for looks in runs])
    errors = torch.where(errors.isnan(), torch.inf, errors)  # (states, made)
    return [looks[-1].state for looks in runs], errors


def at_once(f: Callable[[Any], R], problem: Problem, items: Sequence[Any]) -> list[R]:
    """Apply f to each item, over as many threads as there are; a GPU takes them in turn."""
    results: list[Any] = [None] * len(items)

    def some(start: int, stop: int) -> None:
        with torch.no_grad():  # which is a setting of each thread
            for k in range(start, stop):
                results[k] = f(items[k])

    share(some, len(items), work=_LONG if problem.V.device.type == "cpu" else 0)
    return results
