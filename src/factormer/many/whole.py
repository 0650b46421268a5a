"""Small problems on a CPU: each a single compiled call, several at a time on threads."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np
import torch

from factormer import kernels
from factormer.accelerate.her import HER, is_small
from factormer.data import Dense
from factormer.many.ends import EXACT, Ended, outcome, settle
from factormer.many.jobs import Jobs
from factormer.many.results import Outcome
from factormer.problem.arrays import is_readable
from factormer.problem.products import RESOLVED
from factormer.run.execute import more_seeds
from factormer.run.plan import Plan, View
from factormer.run.result import Status
from factormer.solvers.hals import FLAT
from factormer.starts import Random

_LONG = 100_000  # iterations whose errors are kept
_CLOSE = 1e-2  # error relative to V below which sweeps are not trusted with the last step


def serves(plan: Plan) -> bool:
    """Whether a plan is one that compiled code makes as a whole: a random start, and HER on V."""
    request, (*before, last) = plan.request, plan.stages
    problem = request.problem
    if before or last.view is not View.ITSELF or type(last.solver) is not HER:
        return False
    if not isinstance(plan.start, Random) or not 0 < request.limits.max_iter <= _LONG:
        return False
    if not (problem.is_plain and is_readable(problem.V)):
        return False
    solver, (m, n), r = last.solver.solver, problem.V.shape, problem.rank
    sweeps = solver.sweeps(m, n, r, float(m * n)), solver.sweeps(n, m, r, float(m * n))
    return is_small(problem, sweeps) and kernels.whole_problems("ready") is not None


class Bench:
    """Desks for a few problems, one after another: one for each shape and rank."""

    def __init__(self) -> None:
        self._desks: dict[tuple[int, int, int], Any] = {}

    def desk(self, m: int, n: int, r: int) -> Any:
        """Room to work in, for V (m, n) at rank r."""
        whole = kernels.whole_problems("ready")
        assert whole is not None
        if (m, n, r) not in self._desks:
            self._desks[m, n, r] = whole.Desk.of(m, n, r)
        return self._desks[m, n, r]


def factorized(jobs: Jobs, index: int, bench: Bench) -> Outcome | None:
    """The outcome of a job; None where a single call has more digits: tiny errors, huge numbers."""
    begun, plan = time.perf_counter(), jobs.plan(index)
    seed, r = int(jobs.seed[index]), int(jobs.rank[index])
    V = np.ascontiguousarray(jobs.matrix(index).entries.numpy(), np.float64)  # pyright: ignore
    (m, n), best = V.shape, None
    desk = bench.desk(m, n, r)
    for number in (seed, *more_seeds(seed, plan.n_runs)):
        run = _run(V, number, plan, desk)
        if run is None:
            return None
        if best is None or run.history[-1] < best.history[-1]:
            best = run
    assert best is not None
    rmse = best.rmse
    if plan.settles and not (best.is_settled and rmse > _CLOSE * best.size):
        settle(Dense(torch.from_numpy(desk.data.V)), best.x)
        rmse = _rmse(desk.data.V, best.x)
    if rmse < EXACT * best.size:
        return None
    ended = Ended(best.x, rmse, best.history, best.status, time.perf_counter() - begun)
    return outcome(jobs, index, plan, ended, best.mean, m)


class _Run(NamedTuple):
    """The point [Wᵀ, Hᵀ] of a run on V over its mean, the rmse of every iterate, and how it ended.

    The mean of V, and the root of the mean square of V over it.
    """

    x: np.ndarray
    history: np.ndarray
    rmse: float
    status: Status
    is_settled: bool
    mean: float
    size: float


def _run(V: np.ndarray, seed: int, plan: Plan, desk: Any) -> _Run | None:
    """One run; None where its error is too small for compiled iterations."""
    whole, loops, restart = (
        kernels.whole_problems("ready"),
        kernels.compiled(),
        kernels.restarting(),
    )
    assert whole is not None
    assert loops is not None
    assert restart is not None
    (m, n), limits, solver = V.shape, plan.request.limits, plan.stages[0].solver
    assert isinstance(solver, HER)
    errors, hals = np.empty(limits.max_iter + 1), solver.solver
    r, work, rates = len(desk.points.kept), float(m * n), solver.accelerator
    sweeps = hals.sweeps(m, n, r, work), hals.sweeps(n, m, r, work)
    digits = RESOLVED[torch.float64], FLAT[torch.float64]
    rules = float(rates.beta), limits.tol, plan.settles, *whole.addresses()
    mean, size, rmse, made, status, is_settled = whole.factorize()(
        V,
        seed % 2**64,
        loops.parts(),
        desk,
        restart.Rates(*rates.rates),
        errors,
        whole.Limits(*sweeps, *digits, *rules),
    )
    if status == whole.UNRESOLVED:
        return None
    named = Status.CONVERGED if status == whole.CONVERGED else Status.MAX_ITER
    x, history = desk.points.kept.copy(), errors[: made + 1]
    return _Run(x, history, rmse, named, is_settled, mean, size)


def _rmse(entries: np.ndarray, x: np.ndarray) -> float:
    """The error of the point, [Wᵀ, Hᵀ]."""
    m = len(entries)
    residual = (x[:, :m].T @ x[:, m:] - entries).ravel()
    return math.sqrt(residual @ residual / residual.size)
