"""An accelerated solver is a solver (alg. 2): step, propose, judge, continue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.data.factors import Factors, some, where
from factormer.problem.problem import Problem
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
            return problem.objective(proposed) <= problem.objective(stepped)


@dataclass(frozen=True)
class AfterIteration:
    """Judge a proposal by where an iteration leads from it, and from the solver's own point.

    A network may leave what the solver repairs at once, such as the scale of rows: its point is
    then worse, and the next one better. So a run is never worse than the plain one at the iteration
    after the judged one. It costs two iterations, and is for solvers that need no more than a
    point to go on.
    """

    solver: Solver[Any]

    def accept(
        self, problem: Problem, *, stepped: Factors, proposed: Factors
    ) -> Bool[Tensor, "*b"]:
        with torch.no_grad():
            plain, other = (self._next(problem, x) for x in (stepped, proposed))
            return problem.objective(other) <= problem.objective(plain)

    def _next(self, problem: Problem, x: Factors) -> Factors:
        return self.solver.step(problem, self.solver.init(problem, x)).factors


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

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² at the point."""
        return self.inner.sq_error(problem)


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


class HedgedState(NamedTuple):
    """The better of two points, and the states of the accelerated and of the plain solver."""

    factors: Factors
    led: AcceleratedState
    plain: Any
    error: Float[Tensor, "*b"]

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² at the better point."""
        return self.error


@dataclass(frozen=True)
class Hedged:
    """An accelerated solver and the plain solver, run beside each other.

    The point of an iteration is the better of the two. The safeguard may keep a proposal that has
    a higher loss but pays one iteration later, and a run from there may end in a worse optimum. The
    plain run goes on as if there were no network, so the point of no iteration is worse than that
    of the plain solver. This costs one more plain iteration for each iteration, which is little: a
    proposal of a network costs as much as a hundred or more.
    """

    accelerated: Accelerated

    def init(self, problem: Problem, x0: Factors) -> HedgedState:
        led = self.accelerated.init(problem, x0)
        return self._better(problem, led, self.accelerated.solver.init(problem, x0))

    def step(self, problem: Problem, state: HedgedState) -> HedgedState:
        led = self.accelerated.step(problem, state.led)
        return self._better(problem, led, self.accelerated.solver.step(problem, state.plain))

    def adopt(self, problem: Problem, state: HedgedState, x: Factors) -> HedgedState:
        led = self.accelerated.adopt(problem, state.led, x)
        return self._better(problem, led, self.accelerated.solver.adopt(problem, state.plain, x))

    def _better(self, problem: Problem, led: AcceleratedState, plain: Any) -> HedgedState:
        error, other = led.sq_error(problem), plain.sq_error(problem)
        leads = error <= other  # which NaN is not
        x = where(leads, led.factors, plain.factors)
        return HedgedState(x, led, plain, torch.where(leads, error, other))


@runtime_checkable
class Adaptive(Accelerator[M], Protocol[M]):
    """An accelerator that learns which of its proposals were refused."""

    def judged(self, memory: M, rose: Bool[Tensor, "*b"]) -> M: ...


class RestartedState(NamedTuple):
    """The last point kept and its error; the solver's state, at the proposal it continues from.

    `plain` says where that proposal is the point itself, and the next iteration the plain solver's.
    """

    factors: Factors
    error: Float[Tensor, "*b"]
    plain: Bool[Tensor, "*b"]
    inner: Any
    memory: Any

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² at the point."""
        unknown = some(self.error == torch.inf)
        return problem.sq_error(self.factors) if unknown else self.error


@runtime_checkable
class Resumable(Protocol):
    """The point that a restarted solver continues from; a `RestartedState` is one."""

    @property
    def factors(self) -> Factors: ...
    @property
    def error(self) -> Float[Tensor, "*b"]: ...
    @property
    def plain(self) -> Bool[Tensor, "*b"]: ...
    @property
    def inner(self) -> Any: ...
    @property
    def memory(self) -> Any: ...
    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]: ...


@dataclass(frozen=True)
class Judged(ABC):
    """A solver that begins each iteration at a proposed point, and is judged at its end.

    Where the loss rose over a whole iteration, the point from before is kept and the next iteration
    begins there: that one is the plain solver's, and always accepted. So a proposal costs at most
    one iteration, and a move that pays off only after the solver's next step is not refused.
    """

    solver: Solver[Any]

    @abstractmethod
    def memory(self, problem: Problem, x0: Factors) -> Any:
        """Return the memory before the first iteration."""

    @abstractmethod
    def proposal(
        self, problem: Problem, before: Resumable, after: RestartedState
    ) -> tuple[Factors, Any]:
        """Return where to continue after an iteration was judged, and what to remember."""

    @abstractmethod
    def judged(self, memory: Any, rose: Bool[Tensor, "*b"]) -> Any:
        """The memory after an iteration from a proposal; `rose`: whether the loss increased."""

    def init(self, problem: Problem, x0: Factors) -> RestartedState:
        inner = self.solver.init(problem, x0)
        return self._at(problem, inner.factors, inner)

    def step(self, problem: Problem, state: Resumable) -> RestartedState:
        inner = self.solver.step(problem, state.inner)
        error = inner.sq_error(problem)
        rose = ~(error <= state.error)  # or is NaN
        kept = rose & ~(state.plain & error.isfinite())
        x = where(kept, state.factors, inner.factors)
        error = torch.where(kept, state.error, error)
        after = RestartedState(x, error, kept, inner, state.memory)
        proposed, memory = self.proposal(problem, state, after)
        y = where(kept, x, proposed)
        return after._replace(
            inner=self.solver.adopt(problem, inner, y), memory=self.judged(memory, rose)
        )

    def adopt(self, problem: Problem, state: Resumable, x: Factors) -> RestartedState:
        return self._at(problem, x, self.solver.adopt(problem, state.inner, x))

    def _at(self, problem: Problem, x: Factors, inner: Any) -> RestartedState:
        V = problem.V
        error = torch.full(V.shape[:-2], torch.inf, dtype=torch.float64, device=V.device)
        plain = torch.ones_like(error, dtype=torch.bool)
        return RestartedState(x, error, plain, inner, self.memory(problem, x))


@dataclass(frozen=True)
class Restarted(Judged):
    """A solver whose iterations begin where an accelerator says, and are judged at their end."""

    solver: Solver[Any]
    accelerator: Adaptive[Any]

    def memory(self, problem: Problem, x0: Factors) -> Any:
        return self.accelerator.init(problem, x0)

    def proposal(
        self, problem: Problem, before: Resumable, after: RestartedState
    ) -> tuple[Factors, Any]:
        return self.accelerator.propose(
            problem, before.memory, before=before.factors, stepped=after.factors
        )

    def judged(self, memory: Any, rose: Bool[Tensor, "*b"]) -> Any:
        return self.accelerator.judged(memory, rose)
