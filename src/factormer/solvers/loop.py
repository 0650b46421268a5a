"""The loop: the only place that advances a solver, for solving, training and measuring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.base import Leaping, Solver


class Look(NamedTuple):
    """A look at the loop between iterations: the state, and how many iterations led to it.

    `leapt` holds the errors of the iterations since the last look where a leap computed them.
    """

    problem: Problem
    state: Any
    t: int
    leapt: Float[Tensor, "k *b"] | None = None

    @property
    def factors(self) -> Factors:
        """The point."""
        return self.state.factors

    @property
    def errors(self) -> Float[Tensor, "k *b"]:
        """‖W Hᵀ − V‖² after each iteration since the last look; at the start, that of the start."""
        return self.state.sq_error(self.problem)[None] if self.leapt is None else self.leapt


def loop(
    problem: Problem,
    solver: Solver[Any],
    x0: Factors,
    *,
    limit: int | None = None,
    at_most: int = 1,
    made: int = 0,
) -> Iterator[Look]:
    """Show the start, then the state after every few iterations, up to iteration `limit`.

    `made` counts iterations that came before. A solver that can leap makes the iterations up to
    the next multiple of `at_most` at once; any other makes one. The iterates are the same for
    every `at_most`, to the last bit. Gradients flow through single steps.
    """
    return go_on(problem, solver, solver.init(problem, x0), limit=limit, at_most=at_most, made=made)


def go_on(
    problem: Problem,
    solver: Solver[Any],
    state: Any,
    *,
    limit: int | None = None,
    at_most: int = 1,
    made: int = 0,
) -> Iterator[Look]:
    """The loop from a state instead of a start."""
    look = Look(problem, state, made)
    yield look
    while limit is None or look.t < limit:
        due = at_most - look.t % at_most
        look = _advance(solver, look, due if limit is None else min(due, limit - look.t))
        yield look


def iterated(problem: Problem, solver: Solver[Any], x0: Factors, n_iter: int) -> Any:
    """The state after n iterations."""
    *_, look = loop(problem, solver, x0, limit=n_iter, at_most=max(n_iter, 1))
    return look.state


def _advance(solver: Solver[Any], look: Look, n_iter: int) -> Look:
    """The look after up to `n_iter` iterations at once from a solver that can, one from any other.

    A solver that can leap is asked for a leap of one, too: its steps in torch are its twin, which
    rounds differently.
    """
    problem, state, t, _ = look
    if hasattr(solver, "leap") and not torch.is_grad_enabled():
        leapt, errors = cast(Leaping[Any], solver).leap(problem, state, n_iter)
        if len(errors):
            return Look(problem, leapt, t + len(errors), errors)
    return Look(problem, solver.step(problem, state), t + 1)
