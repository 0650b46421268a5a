"""How compiled runs begin and end: a random start side by side, and from a point to an outcome."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from factormer import kernels
from factormer.data import Matrix, draws
from factormer.data.factors import Factors
from factormer.many.jobs import Jobs
from factormer.many.results import Outcome
from factormer.run.order import SCALES
from factormer.run.plan import Explanation, Plan
from factormer.run.result import Result, Status
from factormer.run.trace import Row, Trace, half_square
from factormer.solvers.coding import Coder

EXACT = 1e-4  # error relative to V below which a single call does it all


def random_start(m: int, n: int, r: int, mean: float, seed: int) -> np.ndarray:
    """The start that `starts.Random` makes, as [Wᵀ, Hᵀ] (r, m + n)."""
    x = np.empty((r, m + n))
    x[:, :m] = draws.uniform(seed, (m, r)).numpy().T
    x[:, m:] = draws.uniform(draws.following(seed), (n, r)).numpy().T
    x *= math.sqrt(4 / r * mean)
    return x


def settle(V: Matrix, x: np.ndarray) -> None:
    """Make W of the point [Wᵀ, Hᵀ] the best for H, exactly."""
    m = V.shape[0]
    W, H = (torch.from_numpy(F.T.copy()).to(V.dtype) for F in (x[:, :m], x[:, m:]))
    found = Coder.of(H)(V, W)
    if V.sq_error(Factors(found, H)) <= V.sq_error(Factors(W, H)):
        x[:, :m] = found.mT.numpy()


class Ended(NamedTuple):
    """A run on V over its mean: its point [Wᵀ, Hᵀ], rmse, the errors on the way, status, seconds.

    `history` begins with the error of the start; `n_iter` is one less than it has.
    """

    x: np.ndarray
    rmse: float
    history: np.ndarray
    status: Status
    seconds: float


def outcome(
    jobs: Jobs, index: int, plan: Plan, said: Explanation, ended: Ended, mean: float, m: int
) -> Outcome:
    """Return the outcome of a run: factors of V itself, with components in order and to scale."""
    several, (r, both) = kernels.several_problems(), ended.x.shape
    assert several is not None
    request, W, H = plan.request, np.empty((m, r)), np.empty((both - m, r))
    by_share, scale = request.order is not None, SCALES[request.scale]
    several.write()(ended.x, mean, by_share, scale, W, H, np.empty((3, r)))
    history, rmse = ended.history * mean, ended.rmse * mean
    about = plan, said, jobs.as_given[int(jobs.problem[index])]
    make = partial(result_of, W, H, ended.status, history, ended.seconds, rmse, *about)
    loss = float(half_square(rmse, W.shape[0] * H.shape[0]))
    return Outcome(rmse, loss, len(history) - 1, ended.status, make)


def result_of(
    W: np.ndarray,
    H: np.ndarray,
    status: Status,
    history: np.ndarray,
    seconds: float,
    rmse: float,
    plan: Plan,
    said: Explanation,
    as_given: Any,
) -> Result:
    """The result with these factors, of which it has copies, and these errors."""
    errors, dtype = torch.from_numpy(history), plan.request.problem.V.dtype
    trace = Trace([Row(0, 0.0, errors[0], 1)])
    trace.entries, trace.measure = np.float64(len(W) * len(H)), plan.request.problem.measure
    if len(errors) > 1:
        trace.extend(errors[1:], seconds, passes=2 * (len(errors) - 1))  # of each, shared or not
    x = Factors(torch.from_numpy(W.copy()), torch.from_numpy(H.copy()))
    if dtype != torch.float64:
        x = Factors(x.W.to(dtype), x.H.to(dtype))
    error = torch.from_numpy(np.array(rmse))  # the fastest way there
    return Result(x, status, trace, error, as_given, said)
