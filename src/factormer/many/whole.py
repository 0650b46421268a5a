"""Small problems on a CPU: each a single compiled call, several at a time on threads."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
import torch

from factormer import kernels
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER, is_small
from factormer.data import Dense
from factormer.many.ends import EXACT, Ended, outcome, random_start, settle
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
_LEAST = 1e-100  # mean of V, or its inverse, beyond which single calls take more care
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


def factorized(jobs: Jobs, index: int) -> Outcome | None:
    """The outcome of a job; None where a single call has more digits: tiny errors, huge numbers."""
    begun, job, plan = time.perf_counter(), jobs[index], jobs.plan(index)
    V = jobs.matrix(index)
    entries = V.entries.numpy().astype(np.float64, order="C")  # pyright: ignore
    with np.errstate(over="ignore"):
        mean = float(entries.mean()) or 1.0
    if not _LEAST < mean < 1 / _LEAST:
        return None
    entries /= mean
    best = None
    for seed in (job.seed, *more_seeds(job.seed, plan.n_runs)):
        run = _run(entries, job.rank, seed, plan)
        if run is None:
            return None
        if best is None or run.history[-1] < best.history[-1]:
            best = run
    assert best is not None
    size = math.sqrt(np.square(entries).mean())
    if plan.settles and not (best.is_settled and _rmse(entries, best.x) > _CLOSE * size):
        settle(Dense(torch.from_numpy(entries)), best.x)
    rmse = _rmse(entries, best.x)
    if rmse < EXACT * size:
        return None
    ended = Ended(best.x, rmse, best.history, best.status, time.perf_counter() - begun)
    return outcome(jobs, index, plan, ended, mean, len(entries))


class _Run(NamedTuple):
    """The point [Wᵀ, Hᵀ] of a run, the rmse of every iterate, and how it ended."""

    x: np.ndarray
    history: np.ndarray
    status: Status
    is_settled: bool


def _run(entries: np.ndarray, r: int, seed: int, plan: Plan) -> _Run | None:
    """One run on V over its mean; None where its error is too small for compiled iterations."""
    whole, loops, restart = (
        kernels.whole_problems("ready"),
        kernels.compiled(),
        kernels.restarting(),
    )
    assert whole is not None
    assert loops is not None
    assert restart is not None
    (m, n), limits, solver = entries.shape, plan.request.limits, plan.stages[0].solver
    assert isinstance(solver, HER)
    x = random_start(m, n, r, float(entries.mean()), seed)
    errors, empty, flat = np.empty(limits.max_iter), np.empty((0, 0)), entries.ravel()
    hals, work = solver.solver, float(m * n)
    sweeps = hals.sweeps(m, n, r, work), hals.sweeps(n, m, r, work)
    digits = RESOLVED[torch.float64], FLAT[torch.float64]
    rates: Extrapolation = solver.accelerator
    first = _rmse(entries, x)
    made, status, is_settled = whole.factorize()(
        loops.parts(),
        loops.Data(entries, np.ascontiguousarray(entries.T), empty, empty, empty),
        loops.Points(x, x.copy(), np.empty_like(x), np.empty_like(x), np.empty((2, r, r))),
        loops.Options(*sweeps, float(flat @ flat), *digits),
        restart.Rates(*rates.rates),
        restart.Progress(float(rates.beta), float(rates.beta), 1.0, math.inf, True),
        errors,
        loops.Scratch.of(loops.unscaled(r)),
        whole.Limits(limits.tol, work, plan.settles, m, *whole.addresses()),
    )
    if status == whole.UNRESOLVED:
        return None
    named = Status.CONVERGED if status == whole.CONVERGED else Status.MAX_ITER
    history = np.concatenate([[first], np.sqrt(errors[:made] / work)])
    return _Run(x, history, named, is_settled)


def _rmse(entries: np.ndarray, x: np.ndarray) -> float:
    """The error of the point, [Wᵀ, Hᵀ]."""
    m = len(entries)
    residual = (x[:, :m].T @ x[:, m:] - entries).ravel()
    return math.sqrt(residual @ residual / residual.size)
