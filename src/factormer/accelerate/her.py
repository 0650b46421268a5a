"""The reference's solver on a CPU: accelerated HALS, extrapolated with restart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer import kernels
from factormer.accelerate.base import Restarted, Resumable
from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.data import Dense, LowRank, readings
from factormer.data.factors import Factors
from factormer.problem.arrays import as_data, is_readable, side_by_side
from factormer.problem.problem import Problem
from factormer.problem.products import RESOLVED
from factormer.solvers.hals import FLAT, HALS, HALSState

# Multiplications per iteration up to which one compiled thread beats torch on two threads.
_SMALL: dict[type, float] = {Dense: 1.2e7, LowRank: 2.5e7}


@dataclass(frozen=True)
class HER(Restarted):
    """Accelerated HALS, extrapolated with restart (Ang & Gillis, 2019)."""

    solver: HALS = field(default_factory=HALS)
    accelerator: Extrapolation = field(default_factory=Extrapolation)

    def init(self, problem: Problem, x0: Factors) -> Any:
        """A `Resumable` at x0, in the arrays of compiled iterations where these will run."""
        run = _Run.at(problem, x0, self.solver, self.accelerator)
        return super().init(problem, x0) if run is None else Leapt(run)

    def leap(
        self, problem: Problem, state: Resumable, n_iter: int
    ) -> tuple[Resumable, Float[Tensor, " n"]]:
        """The state after up to `n_iter` steps at once, compiled, and the error after each.

        None are made where the problem is not small, or not one matrix on a CPU, or where numba is
        missing; fewer where the error is so small that it has to be computed from V itself.
        """
        loops, run = kernels.compiled("extrapolated"), _Run.of(problem, state, self.accelerator)
        if loops is None or run is None:
            return state, torch.empty(0)
        errors = np.empty(n_iter)
        done, after = loops.extrapolated()(
            loops.parts(),
            run.data,
            run.points,
            run.options,
            run.rates,
            run.progress,
            errors,
            run.scratch,
        )
        readings.add(2 * done * isinstance(problem.V, Dense))
        progress = run.progress._make(after)
        return Leapt(run._replace(progress=progress)), torch.from_numpy(errors[:done])


class _Run(NamedTuple):
    """The arguments of compiled iterations (see `kernels.loops`), and their problem."""

    problem: Problem
    data: Any
    points: Any
    options: Any
    rates: Any
    progress: Any
    scratch: Any

    @classmethod
    def of(cls, problem: Problem, state: Resumable, rates: Extrapolation) -> _Run | None:
        """From a state; None where a step in torch is as fast."""
        if isinstance(state, Leapt) and state.run.problem is problem:
            return state.run.copied()
        if not (problem.is_plain and is_readable(problem.V)):
            return None
        sweeps = (int(state.inner.sweeps_h), int(state.inner.sweeps_w))
        if not is_small(problem, sweeps):
            return None
        x = side_by_side(state.factors)
        y = x.copy() if state.plain else side_by_side(state.inner.factors)
        numbers = [float(v) for v in (*state.memory, state.error)]
        return cls._from(problem, x, y, (*numbers, bool(state.plain)), sweeps, rates)

    @classmethod
    def at(cls, problem: Problem, x0: Factors, solver: HALS, rates: Extrapolation) -> _Run | None:
        """From a point, with the state that `Judged.init` would make; None where `of` is."""
        if torch.is_grad_enabled() or not (problem.is_plain and is_readable(problem.V)):
            return None
        V = problem.V
        sweeps = _sweeps(V.shape, problem.rank, float(V.work()), solver)
        if not is_small(problem, sweeps):
            return None
        x, progress = side_by_side(x0), (float(rates.beta), float(rates.beta), 1.0, math.inf, True)
        return cls._from(problem, x, x.copy(), progress, sweeps, rates)

    @classmethod
    def _from(
        cls,
        problem: Problem,
        x: np.ndarray,
        y: np.ndarray,
        progress: tuple[Any, ...],
        sweeps: tuple[int, int],
        rates: Extrapolation,
    ) -> _Run | None:
        loops, restart = kernels.compiled("extrapolated"), kernels.restarting()
        if loops is None or restart is None:
            return None
        V, r = problem.V, problem.rank
        assert is_readable(V)
        digits = (RESOLVED[torch.float64], FLAT[torch.float64])
        return cls(
            problem,
            data=as_data(loops, V, r),
            points=loops.Points(x, y, np.empty_like(x), np.empty_like(x), np.empty((2, r, r))),
            options=loops.Options(*sweeps, float(V.sq_norm()), *digits),
            rates=restart.Rates(*rates.rates),
            progress=restart.Progress(*progress),
            scratch=loops.Scratch.of(loops.unscaled(r)),
        )

    def copied(self) -> _Run:
        """Return a copy with points of its own, since iterations overwrite them."""
        kept, proposed = self.points.kept.copy(), self.points.proposed.copy()
        return self._replace(points=self.points._replace(kept=kept, proposed=proposed))

    def apart(self, F: np.ndarray) -> Factors:
        """The point, split into W and H, as tensors."""
        m, both = self.problem.V.shape[0], torch.from_numpy(F).to(self.problem.V.dtype).mT
        return Factors(both[:m], both[m:])


@dataclass(frozen=True, eq=False)
class Leapt:
    """A `RestartedState` in the arrays of compiled iterations.

    Its parts become tensors on demand: most leaps continue from another leap's arrays.
    """

    run: _Run

    @property
    def factors(self) -> Factors:
        """The last point kept."""
        return self._factors

    @cached_property
    def _factors(self) -> Factors:
        return self.run.apart(self.run.points.kept)

    @property
    def error(self) -> Float[Tensor, ""]:
        """Its error."""
        return torch.tensor(self.run.progress.error, dtype=torch.float64)

    @property
    def plain(self) -> Bool[Tensor, ""]:
        """Whether the proposal is the point itself."""
        return torch.tensor(self.run.progress.plain)

    @property
    def inner(self) -> HALSState:
        """The state of HALS, at the proposal."""
        options = self.run.options
        sweeps_h, sweeps_w = torch.tensor([options.sweeps_h, options.sweeps_w])
        return HALSState(self.run.apart(self.run.points.proposed), sweeps_h, sweeps_w)

    @property
    def memory(self) -> Momentum:
        """Return the state of the accelerator."""
        return Momentum(*torch.tensor(self.run.progress[:3], dtype=self.run.problem.V.dtype))

    def sq_error(self, problem: Problem) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖² at the point."""
        unknown = self.run.progress.error == math.inf
        return problem.sq_error(self.factors) if unknown else self.error


def _sweeps(shape: tuple[int, ...], r: int, work: float, solver: HALS) -> tuple[int, int]:
    """Sweeps of the updates of H and of W."""
    m, n = shape
    return solver.sweeps(m, n, r, work), solver.sweeps(n, m, r, work)


def is_small(problem: Problem, sweeps: tuple[int, int]) -> bool:
    """Whether one compiled thread, in float64, makes iterations with so many sweeps fastest."""
    V = problem.V
    return _multiplications(V.shape, problem.rank, float(V.work()), sweeps) <= _SMALL[type(V)]


def is_small_for(kind: type, shape: tuple[int, ...], r: int, work: float) -> bool:
    """The same of a matrix of that kind, before there is one."""
    return _multiplications(shape, r, work, _sweeps(shape, r, work, HALS())) <= _SMALL[kind]


def _multiplications(shape: tuple[int, ...], r: int, work: float, sweeps: tuple[int, int]) -> float:
    (m, n), (of_h, of_w) = shape, sweeps
    return 2 * r * work + r * r * (n * of_h + m * of_w)
