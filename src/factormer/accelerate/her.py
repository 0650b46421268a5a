"""The CPU engine: accelerated HALS with restart, extrapolated or led by a network, compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Restarted, RestartedState
from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.accelerate.moves import Moves
from factormer.factors import Factors
from factormer.matrix import Dense, LowRank
from factormer.problem import RESOLVED, Problem
from factormer.solvers.hals import FLAT, HALS

_SMALL = 6e6  # multiplications of an iteration up to which Python would be most of its cost


@dataclass(frozen=True)
class HER(Restarted):
    """Accelerated HALS, extrapolated with restart (Ang & Gillis, 2019)."""

    solver: HALS = field(default_factory=HALS)
    accelerator: Extrapolation = field(default_factory=Extrapolation)

    def leap(
        self, problem: Problem, state: RestartedState, n_iter: int
    ) -> tuple[RestartedState, Float[Tensor, " n"]]:
        """The state after up to `n_iter` steps at once, compiled, and the error after each.

        None are made where the problem is not small, or not one matrix on a CPU, or where numba is
        absent; fewer where the error is so small that it has to be computed from V itself.
        """
        loops = kernels.compiled()
        if loops is None or not _is_small(problem, state):
            return state, torch.empty(0)
        run = _Run.of(problem, state, self.accelerator)
        numbers = np.array([float(v) for v in (*state.memory, state.error, state.plain)])
        errors = np.empty(n_iter)
        done = loops.extrapolated()(*run.points, run.options, numbers, errors, *run.scratch)
        beta, last, bound, error, plain = torch.from_numpy(numbers).unbind()
        memory = _momentum(beta, last, bound, problem.V.dtype)
        x, y = run.ends(problem)
        inner = self.solver.adopt(problem, state.inner, y)
        return RestartedState(x, error, plain > 0, inner, memory), torch.from_numpy(errors[:done])


@dataclass(frozen=True)
class LearnedHER(Restarted):
    """Accelerated HALS, each iteration from the proposal of an any-rank network."""

    solver: HALS
    accelerator: AnyRank

    def leap(
        self, problem: Problem, state: RestartedState, n_iter: int
    ) -> tuple[RestartedState, Float[Tensor, " n"]]:
        """As `HER.leap`."""
        compiled, memory = kernels.any_rank(), state.memory
        if compiled is None or not _is_small(problem, state):
            return state, torch.empty(0)
        run = _Run.of(problem, state, self.accelerator.momentum)
        counts = (memory.age, memory.t, memory.strikes)
        numbers = (*memory.momentum, state.error, state.plain, *counts)
        numbers, errors = np.array([float(v) for v in numbers]), np.empty(n_iter)
        options = np.append(run.options, [self.accelerator.patience, self.accelerator.memory])
        older = [_side_by_side(Factors(*pair)) for pair in zip(memory.W, memory.H, strict=True)]
        r, (sizes, weights) = problem.rank, self.accelerator.packed
        sums, gram = np.empty((2, compiled.N_PRODUCTS, r)), np.empty((2, r, r))
        room = compiled.room(r, sizes)
        done = compiled.iterations()(
            *(*run.points, options, numbers, errors, *run.scratch, *older),
            *(sums, gram, np.empty(5), sizes, weights, *room),
        )
        beta, last, bound, error, plain, *counts = torch.from_numpy(numbers).unbind()
        x, y = run.ends(problem)
        dtype = problem.V.dtype
        parts = [_apart(F, problem.V.shape[0], dtype) for F in older]
        after = memory._replace(
            momentum=_momentum(beta, last, bound, dtype),
            proposed=y,
            W=Moves(*(F.W for F in parts)),
            H=Moves(*(F.H for F in parts)),
            **dict(zip(("age", "t", "strikes"), (c.to(dtype) for c in counts), strict=True)),
        )
        inner = self.solver.adopt(problem, state.inner, y)
        return RestartedState(x, error, plain > 0, inner, after), torch.from_numpy(errors[:done])


class _Run(NamedTuple):
    """What the compiled iterations take: V and the points, options, and scratch."""

    points: tuple[Any, ...]
    options: np.ndarray
    scratch: Any

    @classmethod
    def of(cls, problem: Problem, state: RestartedState, rates: Extrapolation) -> _Run:
        V, r = problem.V, problem.rank
        assert isinstance(V, Dense | LowRank)
        (*U, right), (*Z, right_T) = V.chain
        empty = np.empty((0, 0))
        x = _side_by_side(state.factors)
        y = x.copy() if state.plain else _side_by_side(state.inner.factors)
        short = np.empty((r, U[0].shape[1])) if U else empty
        points = (
            *(right, right_T, *(U or [empty]), *(Z or [empty]), short, V.shape[0]),
            *(x, y, np.empty_like(x), np.empty_like(x), np.empty((r, r)), np.empty((r, r))),
            np.array([int(state.inner.sweeps_h), int(state.inner.sweeps_w)]),
        )
        growth = (rates.eta, rates.gamma, rates.gamma_bound)
        digits = (RESOLVED[torch.float64], FLAT[torch.float64])
        loops = kernels.compiled()
        assert loops is not None
        return cls(
            points,
            np.array([*growth, float(V.sq_norm()), *digits]),
            loops.Scratch.of(r, np.float64),
        )

    def ends(self, problem: Problem) -> tuple[Factors, Factors]:
        """The point kept and the proposal, once the iterations are made."""
        m, dtype = problem.V.shape[0], problem.V.dtype
        return _apart(self.points[6], m, dtype), _apart(self.points[7], m, dtype)


def _is_small(problem: Problem, state: RestartedState) -> bool:
    V, r = problem.V, problem.rank
    if not isinstance(V, Dense | LowRank) or len(V.shape) != 2 or V.device.type != "cpu":
        return False
    m, n = V.shape
    sweeps = n * int(state.inner.sweeps_h) + m * int(state.inner.sweeps_w)
    return 2 * r * float(V.work()) + r * r * sweeps <= _SMALL


def _momentum(beta: Tensor, last: Tensor, bound: Tensor, dtype: torch.dtype) -> Momentum:
    return Momentum(beta.to(dtype), last.to(dtype), bound.to(dtype))


def _side_by_side(x: Factors) -> np.ndarray:
    """[Wᵀ, Hᵀ] by rows, in float64."""
    return torch.cat([x.W.mT, x.H.mT], dim=1).double().contiguous().numpy()


def _apart(F: np.ndarray, m: int, dtype: torch.dtype) -> Factors:
    both = torch.from_numpy(F).to(dtype).mT
    return Factors(both[:m], both[m:])
