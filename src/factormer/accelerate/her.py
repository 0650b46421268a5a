"""The CPU engine: accelerated HALS with restart, extrapolated or led by a network, compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer import kernels
from factormer.accelerate.anyrank import AnyRank, Memory
from factormer.accelerate.base import Restarted, Resumable
from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.accelerate.moves import Moves
from factormer.data import Dense, LowRank
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.problem.products import RESOLVED
from factormer.solvers.hals import FLAT, HALS, HALSState

# Multiplications of an iteration up to which one compiled thread beats Python, BLAS and two.
_SMALL: dict[type, float] = {Dense: 1.2e7, LowRank: 2.5e7}


@dataclass(frozen=True)
class HER(Restarted):
    """Accelerated HALS, extrapolated with restart (Ang & Gillis, 2019)."""

    solver: HALS = field(default_factory=HALS)
    accelerator: Extrapolation = field(default_factory=Extrapolation)

    def init(self, problem: Problem, x0: Factors) -> Any:
        """A `Resumable` at x0, in the arrays of compiled iterations where these are to come."""
        run = _Run.at(problem, x0, self.solver, self.accelerator)
        return super().init(problem, x0) if run is None else Leapt(run, _momentum)

    def leap(
        self, problem: Problem, state: Resumable, n_iter: int
    ) -> tuple[Resumable, Float[Tensor, " n"]]:
        """The state after up to `n_iter` steps at once, compiled, and the error after each.

        None are made where the problem is not small, or not one matrix on a CPU, or where numba is
        absent; fewer where the error is so small that it has to be computed from V itself.
        """
        loops, run = kernels.compiled("extrapolated"), _Run.of(problem, state, self.accelerator)
        if loops is None or run is None:
            return state, torch.empty(0)
        errors = np.empty(n_iter)
        done = loops.extrapolated()(*run.points, run.options, run.numbers, errors, *run.scratch)
        return Leapt(run, _momentum), torch.from_numpy(errors[:done])


@dataclass(frozen=True)
class LearnedHER(Restarted):
    """Accelerated HALS, each iteration from the proposal of an any-rank network."""

    solver: HALS
    accelerator: AnyRank

    def leap(
        self, problem: Problem, state: Resumable, n_iter: int
    ) -> tuple[Resumable, Float[Tensor, " n"]]:
        """As `HER.leap`."""
        compiled = kernels.any_rank("iterations")
        run = _Run.of(problem, state, self.accelerator.momentum)
        if compiled is None or run is None:
            return state, torch.empty(0)
        errors = np.empty(n_iter)
        options = np.append(run.options, [self.accelerator.patience, self.accelerator.memory])
        r, (sizes, weights) = problem.rank, self.accelerator.packed
        sums, room = np.empty((2, compiled.N_PRODUCTS, r)), compiled.room(r, sizes)
        done = compiled.iterations()(
            *(*run.points, options, run.numbers, errors, *run.scratch, *run.older),
            *(sums, np.empty(5), sizes, weights, *room),
        )
        return Leapt(run, _memory), torch.from_numpy(errors[:done])


class _Run(NamedTuple):
    """What the compiled iterations take: V and the points, numbers, options, and scratch."""

    problem: Problem
    x: np.ndarray  # the point kept, and the proposal: [Wᵀ, Hᵀ] by rows, in float64
    y: np.ndarray
    numbers: np.ndarray  # β, the one before it, its bound, the error, plain or not; and ages
    older: list[np.ndarray]  # moves before the last, as x
    sweeps: np.ndarray
    options: np.ndarray
    scratch: Any

    @classmethod
    def of(cls, problem: Problem, state: Resumable, rates: Extrapolation) -> _Run | None:
        """From a state; None where a step in torch is as good."""
        if isinstance(state, Leapt) and state.run.problem is problem:
            return state.run.copied()
        if not _is_one(problem):
            return None
        sweeps = (int(state.inner.sweeps_h), int(state.inner.sweeps_w))
        if not _is_small(problem, sweeps):
            return None
        x, older, memory = _side_by_side(state.factors), [], state.memory
        numbers = [*state.memory, state.error, state.plain]
        if isinstance(memory, Memory):
            moves = zip(memory.W, memory.H, strict=True)
            older = [_side_by_side(Factors(*pair)) for pair in moves]
            counts = (memory.age, memory.t, memory.strikes)
            numbers = [*memory.momentum, state.error, state.plain, *counts]
        y = x.copy() if state.plain else _side_by_side(state.inner.factors)
        return cls._from(problem, x, y, [float(v) for v in numbers], older, sweeps, rates)

    @classmethod
    def at(cls, problem: Problem, x0: Factors, solver: HALS, rates: Extrapolation) -> _Run | None:
        """From a point, as a state that `Judged.init` makes would have it; None where `of` is."""
        if torch.is_grad_enabled() or not _is_one(problem):
            return None
        (m, n), r, work = problem.V.shape, problem.rank, float(problem.V.work())
        sweeps = (solver.sweeps(m, n, r, work), solver.sweeps(n, m, r, work))
        if not _is_small(problem, sweeps):
            return None
        x, numbers = _side_by_side(x0), [rates.beta, rates.beta, 1.0, math.inf, 1.0]
        return cls._from(problem, x, x.copy(), numbers, [], sweeps, rates)

    @classmethod
    def _from(
        cls,
        problem: Problem,
        x: np.ndarray,
        y: np.ndarray,
        numbers: list[float],
        older: list[np.ndarray],
        sweeps: tuple[int, int],
        rates: Extrapolation,
    ) -> _Run | None:
        if (loops := kernels.compiled("parts")) is None:
            return None
        growth = (rates.eta, rates.gamma, rates.gamma_bound)
        digits = (RESOLVED[torch.float64], FLAT[torch.float64])
        options = np.array([*growth, float(problem.V.sq_norm()), *digits])
        scratch = loops.Scratch.of(loops.unscaled(problem.rank))
        return cls(problem, x, y, np.array(numbers), older, np.array(sweeps), options, scratch)

    def copied(self) -> _Run:
        """The same with arrays of its own, as far as iterations write more than scratch."""
        x, y, numbers = self.x.copy(), self.y.copy(), self.numbers.copy()
        older = [F.copy() for F in self.older]
        return self._replace(x=x, y=y, numbers=numbers, older=older)

    @property
    def points(self) -> tuple[Any, ...]:
        """Parts, V, the points and room for new ones, in the order of `kernels.loops`."""
        V, r, empty = self.problem.V, self.problem.rank, np.empty((0, 0))
        loops = kernels.compiled("parts")
        assert isinstance(V, Dense | LowRank)
        assert loops is not None
        (*U, right), (*Z, right_T) = V.chain
        short = np.empty((r, U[0].shape[1])) if U else empty
        new, F = (np.empty_like(self.x) for _ in range(2))
        return (
            *(loops.parts(), right, right_T, *(U or [empty]), *(Z or [empty]), short, V.shape[0]),
            *(self.x, self.y, new, F, np.empty((2, r, r)), self.sweeps),
        )

    def apart(self, F: np.ndarray) -> Factors:
        """The point that is held side by side, as tensors."""
        m, both = self.problem.V.shape[0], torch.from_numpy(F).to(self.problem.V.dtype).mT
        return Factors(both[:m], both[m:])


@dataclass(frozen=True, eq=False)
class Leapt:
    """A `RestartedState` as compiled iterations leave it, and take it up again.

    Its parts become tensors when they are asked for: most leaps go on from another.
    """

    run: _Run
    recall: Callable[[_Run], Any]

    @property
    def factors(self) -> Factors:
        """The last point kept."""
        return self._factors

    @cached_property
    def _factors(self) -> Factors:
        return self.run.apart(self.run.x)

    @property
    def error(self) -> Float[Tensor, ""]:
        """Its error."""
        return torch.tensor(self.run.numbers[3])

    @property
    def plain(self) -> Bool[Tensor, ""]:
        """Whether the proposal is the point itself."""
        return torch.tensor(self.run.numbers[4] > 0)

    @property
    def inner(self) -> HALSState:
        """The state of HALS, at the proposal."""
        sweeps_h, sweeps_w = torch.from_numpy(self.run.sweeps)
        return HALSState(self.run.apart(self.run.y), sweeps_h, sweeps_w)

    @property
    def memory(self) -> Any:
        """What the accelerator knows."""
        return self.recall(self.run)

    def sq_error(self, problem: Problem) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖² at the point."""
        unknown = self.run.numbers[3] == math.inf
        return problem.sq_error(self.factors) if unknown else self.error


def _momentum(run: _Run) -> Momentum:
    return Momentum(*torch.from_numpy(run.numbers[:3]).to(run.problem.V.dtype))


def _memory(run: _Run) -> Memory:
    parts = [run.apart(F) for F in run.older]
    W, H = Moves(*(F.W for F in parts)), Moves(*(F.H for F in parts))
    counts = torch.from_numpy(run.numbers[5:]).to(run.problem.V.dtype)
    return Memory(_momentum(run), run.apart(run.y), W, H, *counts)


def _is_one(problem: Problem) -> bool:
    """Whether it is plain, and V one matrix on a CPU, unpadded, that compiled loops can read."""
    V = problem.V
    if not problem.is_plain or not isinstance(V, Dense | LowRank):
        return False
    if V.rows is not None or V.cols is not None:
        return False
    return len(V.shape) == 2 and V.device.type == "cpu"


def _is_small(problem: Problem, sweeps: tuple[int, int]) -> bool:
    (m, n), r = problem.V.shape, problem.rank
    rows = n * sweeps[0] + m * sweeps[1]
    return 2 * r * float(problem.V.work()) + r * r * rows <= _SMALL[type(problem.V)]


def _side_by_side(x: Factors) -> np.ndarray:
    """[Wᵀ, Hᵀ] by rows, in float64."""
    both = np.empty((x.W.shape[1], len(x.W) + len(x.H)))
    return np.concatenate([x.W.mT.numpy(), x.H.mT.numpy()], axis=1, out=both)
