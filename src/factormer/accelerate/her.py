"""HER, the classical engine: accelerated HALS, extrapolated with restart, compiled where small."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.base import Restarted, RestartedState
from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.factors import Factors
from factormer.kernels import compiled
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
        loops, V, r = compiled(), problem.V, problem.rank
        if loops is None or not isinstance(V, Dense | LowRank) or not _is_small(V, r, state):
            return state, torch.empty(0)
        (*U, right), (*Z, right_T) = V.chain
        m, empty = V.shape[0], np.empty((0, 0))
        x = _side_by_side(state.factors)
        y = x.copy() if state.plain else _side_by_side(state.inner.factors)
        rates, errors = self.accelerator, np.empty(n_iter)
        numbers = np.array([float(v) for v in (*state.memory, state.error, state.plain)])
        options = (rates.eta, rates.gamma, rates.gamma_bound, float(V.sq_norm()))
        done = loops.extrapolated()(
            *(right, right_T, *(U or [empty]), *(Z or [empty])),
            *(np.empty((r, U[0].shape[1])) if U else empty, m),
            *(x, y, np.empty_like(x), np.empty_like(x), np.empty((r, r)), np.empty((r, r))),
            np.array([int(state.inner.sweeps_h), int(state.inner.sweeps_w)]),
            np.array([*options, RESOLVED[torch.float64], FLAT[torch.float64]]),
            *(numbers, errors, *loops.Scratch.of(r, np.float64)),
        )
        beta, last, bound, error, plain = torch.from_numpy(numbers).unbind()
        memory = Momentum(*(value.to(V.dtype) for value in (beta, last, bound)))
        inner = self.solver.adopt(problem, state.inner, _apart(y, m, V.dtype))
        after = RestartedState(_apart(x, m, V.dtype), error, plain > 0, inner, memory)
        return after, torch.from_numpy(errors[:done])


def _is_small(V: Dense | LowRank, r: int, state: RestartedState) -> bool:
    if len(V.shape) != 2 or V.device.type != "cpu":
        return False
    m, n = V.shape
    sweeps = n * int(state.inner.sweeps_h) + m * int(state.inner.sweeps_w)
    return 2 * r * float(V.work()) + r * r * sweeps <= _SMALL


def _side_by_side(x: Factors) -> np.ndarray:
    """[Wᵀ, Hᵀ] by rows, in float64."""
    return torch.cat([x.W.mT, x.H.mT], dim=1).double().contiguous().numpy()


def _apart(F: np.ndarray, m: int, dtype: torch.dtype) -> Factors:
    both = torch.from_numpy(F).to(dtype).mT
    return Factors(both[:m], both[m:])
