"""Newton steps extrapolated with restart, and many of them at once where they are small."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.accelerate.base import Restarted, RestartedState
from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.data import readings
from factormer.data.factors import Factors
from factormer.kernels.threads import scratch
from factormer.problem.problem import Problem
from factormer.solvers.newton import Newton, is_plain_kullback

_SMALL = 4e6  # multiplications of a half-step up to which threads would gain less than Python costs


@dataclass(frozen=True)
class ExtrapolatedNewton(Restarted):
    """Newton steps, extrapolated with restart (Ang & Gillis, 2019)."""

    solver: Newton = field(default_factory=Newton)
    accelerator: Extrapolation = field(default_factory=Extrapolation)

    def leap(
        self, problem: Problem, state: RestartedState, n_iter: int
    ) -> tuple[RestartedState, Float[Tensor, " n"]]:
        """The state after `n_iter` steps at once, compiled, and twice the objective after each.

        None are made except under Kullback–Leibler, on one small dense matrix on a CPU.
        """
        loops, restart = kernels.kullback_iterations("iterations"), kernels.restarting()
        rows = kernels.kullback_rows()
        if loops is None or restart is None or rows is None or not self._can(problem):
            return state, torch.empty(0)
        (m, n), r, dtype = problem.V.shape, problem.rank, problem.V.dtype
        x = _stacked(state.factors)
        y = x.copy() if state.plain else _stacked(state.inner.factors)
        data = (problem.entries.values.reshape(m, n), problem.T.entries.values.reshape(n, m))
        rates = restart.Rates(*self.accelerator.rates)
        numbers = (float(v) for v in (*state.memory, state.error))
        options = (rows.Options(*self.solver.options(on, r)) for on in (problem.on_h, problem.on_w))
        points = loops.Points(x, y, np.empty_like(x), np.empty((max(m, n), r)), np.empty(r))
        room, errors = scratch(rows.Room.of, max(m, n), r, np.float64), np.empty(n_iter)
        after = loops.iterations()(
            *data,
            points,
            *options,
            rates,
            restart.Progress(*numbers, bool(state.plain)),
            errors,
            room,
        )
        readings.add(2 * n_iter)
        progress = restart.Progress(*after)
        memory = Momentum(*torch.tensor(progress[:3], dtype=dtype))
        error, plain = (
            torch.tensor(progress.error, dtype=torch.float64),
            torch.tensor(progress.plain),
        )
        points = (Factors(F[:m], F[m:]) for F in (torch.from_numpy(x), torch.from_numpy(y)))
        kept, proposed = points
        inner = self.solver.adopt(problem, state.inner, proposed)
        return RestartedState(kept, error, plain, inner, memory), torch.from_numpy(errors)

    def _can(self, problem: Problem) -> bool:
        V, r = problem.V, problem.rank
        if not is_plain_kullback(problem):
            return False
        settled = problem.on_h.is_settled or self.solver.n_steps > 1
        double = V.dtype == torch.float64 and V.device.type == "cpu" and len(V.shape) == 2
        return double and not settled and V.shape[0] * V.shape[1] * r * r / 2 <= _SMALL


def _stacked(x: Factors) -> np.ndarray:
    """[W; H]."""
    return torch.cat([x.W, x.H]).numpy()
