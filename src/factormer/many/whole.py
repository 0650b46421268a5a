"""Small problems on a CPU: each a single compiled call, several at a time on threads."""

from __future__ import annotations

import math
import time

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
    whole, loops, restart = (
        kernels.whole_problems("ready"),
        kernels.compiled(),
        kernels.restarting(),
    )
    assert whole is not None
    assert loops is not None
    assert restart is not None
    begun, job, plan = time.perf_counter(), jobs[index], jobs.plan(index)
    request, solver = plan.request, plan.stages[0].solver
    assert isinstance(solver, HER)
    V = jobs.matrix(index)
    entries = V.entries.numpy().astype(np.float64, order="C")  # pyright: ignore
    with np.errstate(over="ignore"):
        mean = float(entries.mean()) or 1.0
    if not _LEAST < mean < 1 / _LEAST:
        return None
    entries /= mean
    (m, n), r, limits = entries.shape, job.rank, request.limits
    kept = random_start(m, n, r, float(entries.mean()), job.seed)
    errors, empty = np.empty(limits.max_iter), np.empty((0, 0))
    flat = entries.ravel()
    hals, norm = solver.solver, float(flat @ flat)
    sweeps = hals.sweeps(m, n, r, float(m * n)), hals.sweeps(n, m, r, float(m * n))
    options = loops.Options(*sweeps, norm, RESOLVED[torch.float64], FLAT[torch.float64])
    rates: Extrapolation = solver.accelerator
    first = _rmse(entries, kept, m)
    made, status, settled = whole.factorize()(
        loops.parts(),
        loops.Data(entries, np.ascontiguousarray(entries.T), empty, empty, empty),
        loops.Points(
            kept, kept.copy(), np.empty_like(kept), np.empty_like(kept), np.empty((2, r, r))
        ),
        options,
        restart.Rates(*rates.rates),
        restart.Progress(float(rates.beta), float(rates.beta), 1.0, math.inf, True),
        errors,
        loops.Scratch.of(loops.unscaled(r)),
        whole.Limits(limits.tol, float(flat.size), plan.settles, m, *whole.addresses()),
    )
    if status == whole.UNRESOLVED:
        return None
    size = math.sqrt(norm / flat.size)
    if plan.settles and not (settled and _rmse(entries, kept, m) > _CLOSE * size):
        settle(Dense(torch.from_numpy(entries)), kept)
    rmse = _rmse(entries, kept, m)
    if rmse < EXACT * size:
        return None
    named = Status.CONVERGED if status == whole.CONVERGED else Status.MAX_ITER
    history = np.concatenate([[first], np.sqrt(errors[:made] / flat.size)])
    ended = Ended(kept, rmse, history, named, time.perf_counter() - begun)
    return outcome(jobs, index, plan, ended, mean, m)


def _rmse(entries: np.ndarray, kept: np.ndarray, m: int) -> float:
    """The error of the point, [Wᵀ, Hᵀ]."""
    residual = (kept[:, :m].T @ kept[:, m:] - entries).ravel()
    return math.sqrt(residual @ residual / residual.size)
