"""Small problems on a CPU: many in a single compiled call, several calls at a time on threads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from factormer import kernels
from factormer.accelerate.her import HER, is_small
from factormer.data import Dense
from factormer.many.ends import EXACT, settle
from factormer.many.jobs import Jobs
from factormer.many.solved import Solved
from factormer.problem.arrays import is_readable
from factormer.problem.products import RESOLVED
from factormer.run.execute import more_seeds
from factormer.run.order import SCALES
from factormer.run.plan import Plan, View
from factormer.solvers.hals import FLAT
from factormer.starts import Random

_LONG = 100_000  # iterations whose errors are kept
_CLOSE = 1e-2  # error relative to V below which sweeps are not trusted with the last step
_SECONDS = 0.05  # that a compiled call takes, about, since none is interrupted
_ROOM = 2**21  # errors of iterations that a call has room for


def serves(plan: Plan) -> bool:
    """Whether a plan is one that compiled code makes as a whole: a random start, and HER on V."""
    request, (*before, last) = plan.request, plan.stages
    problem = request.problem
    if before or last.view is not View.ITSELF or type(last.solver) is not HER:
        return False
    limits = request.limits
    if limits.stop != "gradient":
        return False
    if not isinstance(plan.start, Random) or not 0 < limits.max_iter <= _LONG:
        return False
    if not (problem.is_plain and is_readable(problem.V)):
        return False
    solver, (m, n), r = last.solver.solver, problem.V.shape, problem.rank
    sweeps = solver.sweeps(m, n, r, float(m * n)), solver.sweeps(n, m, r, float(m * n))
    return is_small(problem, sweeps) and kernels.several_problems("ready") is not None


class _Rules(NamedTuple):
    """What the jobs of a call have in common: how they step, when they stop, and how they end."""

    rates: tuple[float, float, float]
    beta: float
    tol: float
    order: bool
    scale: int
    max_iter: int


class _Kind(NamedTuple):
    """What jobs of one plan have in common: its rules, runs, and columns 1 to 6 of a table."""

    rules: _Rules
    n_runs: int
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan) -> _Kind:
        request, solver = plan.request, plan.stages[0].solver
        assert isinstance(solver, HER)
        (m, n), r, limits = request.problem.V.shape, request.problem.rank, request.limits
        sweeps = [solver.solver.sweeps(*shape, r, float(m * n)) for shape in ((m, n), (n, m))]
        rates, ends = solver.accelerator, (request.order is not None, SCALES[request.scale])
        rules = _Rules(rates.rates, float(rates.beta), limits.tol, *ends, limits.max_iter)
        return cls(rules, plan.n_runs, (m, n, r, *sweeps, int(plan.settles)))

    @property
    def length(self) -> int:
        """Numbers in the factors."""
        m, n, r, *_ = self.sizes
        return r * (m + n)


class _Job(NamedTuple):
    at: int  # its index
    plan: Plan
    kind: _Kind


def factorized(
    jobs: Jobs, indices: list[int], is_over: Callable[[], bool]
) -> tuple[list[Solved], list[int]]:
    """Jobs that were solved before it was over, and those that single calls have more digits for.

    The latter have tiny errors, or huge numbers.
    """
    solved, refused = list[Solved](), list[int]()
    for rules, group in _groups(jobs, indices).items():
        most = max(1, _ROOM // (rules.max_iter + 1))
        count, done = min(len(group), most), 0
        while done < len(group) and not is_over():
            begun, some = time.perf_counter(), group[done : done + count]
            batch, others = _solved(jobs, some, rules)
            solved += [batch] if len(batch.indices) else []
            refused += others
            done += count
            slow = (time.perf_counter() - begun) / _SECONDS
            count = max(1, min(most, int(count / max(slow, 0.5))))
    return solved, refused


def _groups(jobs: Jobs, indices: list[int]) -> dict[_Rules, list[_Job]]:
    """The jobs by their rules."""
    kinds, groups = dict[int, _Kind](), dict[_Rules, list[_Job]]()
    for index in indices:
        plan = jobs.plan(index)
        kind = kinds.get(id(plan))
        if kind is None:
            kind = kinds[id(plan)] = _Kind.of(plan)
            groups.setdefault(kind.rules, [])
        groups[kind.rules].append(_Job(index, plan, kind))
    return groups


def _solved(jobs: Jobs, group: list[_Job], rules: _Rules) -> tuple[Solved, list[int]]:
    """What one compiled call makes of these jobs; and the indices of those that it refused."""
    several, begun = kernels.several_problems("ready"), time.perf_counter()
    assert several is not None
    data = [_entries(jobs, job.at) for job in group]  # held until the call ends
    seeds = [[s := int(jobs.seed[i]), *more_seeds(s, kind.n_runs)] for i, _, kind in group]
    runs = accumulate(map(len, seeds), initial=0)
    ends = list(accumulate((job.kind.length for job in group), initial=0))
    table = [
        (V.data_ptr(), *kind.sizes, first, kind.n_runs, at)
        for V, (_, _, kind), first, at in zip(data, group, runs, ends, strict=False)
    ]
    factors, histories = np.empty(ends[-1]), np.empty(len(group) * (rules.max_iter + 1))
    numbers = _called(several, table, [*chain(*seeds)], rules, factors, histories)
    own = [factors[a:b] for a, b in pairwise(ends)]
    resolved = numbers[:, several.STATUS] != several.UNRESOLVED
    for k in np.flatnonzero(resolved & (numbers[:, several.FINISHED] == 0)):
        m, n, r, *_ = group[k].kind.sizes
        numbers[k, several.RMSE] = _finish(data[k], own[k], (m, n, r), numbers[k], rules)
    kept = resolved & (numbers[:, several.RMSE] >= EXACT * numbers[:, several.SIZE])
    places, at = np.flatnonzero(kept), np.array([job.at for job in group])
    used = int((numbers[:, several.PLACE] + numbers[:, several.N_ITER]).max()) + 1
    batch = Solved(
        jobs,
        at[kept],
        [group[k].plan for k in places],
        [own[k] for k in places],
        numbers[kept],
        histories[:used].copy(),
        time.perf_counter() - begun,
    )
    return batch, at[~kept].tolist()


def _entries(jobs: Jobs, index: int) -> torch.Tensor:
    V = jobs.matrix(index)
    assert isinstance(V, Dense)
    return V.entries.double().contiguous()


def _called(
    several: Any,
    table: list[tuple[int, ...]],
    seeds: list[int],
    rules: _Rules,
    factors: np.ndarray,
    histories: np.ndarray,
) -> np.ndarray:
    """The compiled call; returns a row of numbers for each problem."""
    loops, restart = kernels.compiled(), kernels.restarting()
    assert loops is not None
    assert restart is not None
    digits = RESOLVED[torch.float64], _CLOSE, FLAT[torch.float64]
    numbers = np.zeros((len(table), several.PLACE + 1))
    several.factorize()(
        np.array(table, np.int64),
        np.array(seeds, np.uint64),
        loops.parts(),
        restart.Rates(*rules.rates),
        several.Rules(
            *digits, rules.beta, rules.tol, rules.order, rules.scale, *several.addresses()
        ),
        np.empty(max(several.room(*sizes) for sizes in {row[1:4] for row in table})),
        np.empty(rules.max_iter + 1),
        factors,
        histories,
        numbers,
    )
    return numbers


def _finish(
    V: torch.Tensor, both: np.ndarray, sizes: tuple[int, int, int], number: Any, rules: _Rules
) -> float:
    """Settle W exactly: `both` has the point, and gets the factors. Returns the rmse."""
    several, (m, n, r) = kernels.several_problems(), sizes
    assert several is not None
    mean, x = number[several.MEAN], both.reshape(r, m + n).copy()
    scaled = V / mean
    settle(Dense(scaled), x)
    W, H = both[: m * r].reshape(m, r), both[m * r :].reshape(n, r)
    several.write()(x, mean, rules.order, rules.scale, W, H, np.empty((3, r)))
    residual = (x[:, :m].T @ x[:, m:] - scaled.numpy()).ravel()
    return math.sqrt(residual @ residual / residual.size)
