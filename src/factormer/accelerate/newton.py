"""Newton steps extrapolated with restart, and many of them at once where they are small."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
        if not self.leaps(problem):
            return state, torch.empty(0)
        (m, n), dtype, x = problem.V.shape, problem.V.dtype, _stacked(state.factors)
        y = x.copy() if state.plain else _stacked(state.inner.factors)
        data = (problem.entries.values.reshape(m, n), problem.T.entries.values.reshape(n, m))
        run = self.run(problem, data, x, y)
        numbers = (float(v) for v in (*state.memory, state.error))
        run.progress = run.progress._make((*numbers, bool(state.plain)))
        errors = run(n_iter)
        readings.add(2 * n_iter)
        memory = Momentum(*torch.tensor(run.progress[:3], dtype=dtype))
        error, plain = (
            torch.tensor(run.progress.error, dtype=torch.float64),
            torch.tensor(run.progress.plain),
        )
        points = (Factors(F[:m], F[m:]) for F in (torch.from_numpy(x), torch.from_numpy(y)))
        kept, proposed = points
        inner = self.solver.adopt(problem, state.inner, proposed)
        return RestartedState(kept, error, plain, inner, memory), torch.from_numpy(errors)

    def run(
        self, problem: Problem, data: tuple[np.ndarray, np.ndarray], x: np.ndarray, y: np.ndarray
    ) -> Run:
        """Compiled iterations from [W; H] = x by way of y, on V and its transpose, in `data`."""
        loops, restart = kernels.kullback_iterations("iterations"), kernels.restarting()
        rows = kernels.kullback_rows()
        assert loops is not None
        assert restart is not None
        assert rows is not None
        (m, n), r, beta = data[0].shape, problem.rank, float(self.accelerator.beta)
        return Run(
            loops.iterations(),
            data,
            loops.Points(x, y, np.empty_like(x), np.empty((max(m, n), r)), np.empty(r)),
            tuple(rows.Options(*self.solver.options(on, r)) for on in (problem.on_h, problem.on_w)),
            restart.Rates(*self.accelerator.rates),
            scratch(rows.Room.of, max(m, n), r, np.float64),
            restart.Progress(beta, beta, 1.0, math.inf, True),
        )

    def leaps(self, problem: Problem) -> bool:
        """Whether there are compiled iterations for this problem."""
        V, r = problem.V, problem.rank
        if not is_plain_kullback(problem):
            return False
        settled = problem.on_h.is_settled or self.solver.n_steps > 1
        double = V.dtype == torch.float64 and V.device.type == "cpu" and len(V.shape) == 2
        small = double and not settled and V.shape[0] * V.shape[1] * r * r / 2 <= _SMALL
        return small and all(
            module is not None
            for module in (
                kernels.kullback_iterations("iterations"),
                kernels.restarting(),
                kernels.kullback_rows(),
            )
        )


@dataclass
class Run:
    """Compiled iterations, and how they stand: `points` are overwritten."""

    iterate: Callable[..., Any]
    data: tuple[np.ndarray, np.ndarray]
    points: Any
    options: tuple[Any, ...]
    rates: Any
    room: Any
    progress: Any

    def __call__(self, n_iter: int) -> np.ndarray:
        """Make so many iterations; returns twice the objective after each."""
        errors = np.empty(n_iter)
        given = (*self.data, self.points, *self.options, self.rates, self.progress, errors)
        self.progress = self.progress._make(self.iterate(*given, self.room))
        return errors


def _stacked(x: Factors) -> np.ndarray:
    """[W; H]."""
    return torch.cat([x.W, x.H]).numpy()
