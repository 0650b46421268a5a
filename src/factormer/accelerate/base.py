"""An accelerated solver is a solver (alg. 2): step, propose, judge, go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from factormer.factors import Factors, where
from factormer.problem import Problem
from factormer.solvers.base import Solver

M = TypeVar("M")


@runtime_checkable
class Accelerator(Protocol[M]):
    """Proposes a better point from the one before an iteration and the one after; M is memory."""

    def init(self, problem: Problem, x0: Factors) -> M: ...
    def propose(
        self, problem: Problem, memory: M, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, M]: ...


@runtime_checkable
class Safeguard(Protocol):
    """Decides, for each problem of a batch, whether a proposal replaces the solver's own point."""

    def accept(
        self, problem: Problem, *, stepped: Factors, proposed: Factors
    ) -> Bool[Tensor, "*b"]: ...


@dataclass(frozen=True)
class Always:
    """Take every proposal: the paper, and training."""

    def accept(
        self, problem: Problem, *, stepped: Factors, proposed: Factors
    ) -> Bool[Tensor, "*b"]:
        return torch.ones(problem.V.shape[:-2], dtype=torch.bool, device=problem.V.device)


@dataclass(frozen=True)
class Descent:
    """Drop a proposal whose loss is above that of the solver's own point, or not finite.

    So an accelerated iteration is never worse than the plain one from the same state.
    """

    def accept(
        self, problem: Problem, *, stepped: Factors, proposed: Factors
    ) -> Bool[Tensor, "*b"]:
        with torch.no_grad():
            return problem.loss(proposed) <= problem.loss(stepped)


@dataclass(frozen=True)
class Identity:
    """The accelerator that proposes what the solver found; `Accelerated` is then the solver."""

    def init(self, problem: Problem, x0: Factors) -> None:
        return None

    def propose(
        self, problem: Problem, memory: None, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, None]:
        return stepped, None


class AcceleratedState(NamedTuple):
    """The point taken, the state of the solver inside, the accelerator's memory, the iteration."""

    factors: Factors
    inner: Any
    memory: Any
    t: int


@dataclass(frozen=True)
class Accelerated:
    """A solver whose first `n_accel` iterations are each followed by a proposal (alg. 2)."""

    solver: Solver[Any]
    accelerator: Accelerator[Any]
    safeguard: Safeguard = field(default_factory=Descent)
    n_accel: int = 5

    def init(self, problem: Problem, x0: Factors) -> AcceleratedState:
        inner = self.solver.init(problem, x0)
        return AcceleratedState(inner.factors, inner, self.accelerator.init(problem, x0), 0)

    def step(self, problem: Problem, state: AcceleratedState) -> AcceleratedState:
        inner = self.solver.step(problem, state.inner)
        if state.t >= self.n_accel:
            return AcceleratedState(inner.factors, inner, state.memory, state.t + 1)
        proposed, memory = self.accelerator.propose(
            problem, state.memory, before=state.factors, stepped=inner.factors
        )
        accepted = self.safeguard.accept(problem, stepped=inner.factors, proposed=proposed)
        x = where(accepted, proposed, inner.factors)
        return AcceleratedState(x, self.solver.adopt(problem, inner, x), memory, state.t + 1)

    def adopt(self, problem: Problem, state: AcceleratedState, x: Factors) -> AcceleratedState:
        return state._replace(factors=x, inner=self.solver.adopt(problem, state.inner, x))
