"""Jobs as lanes of the compiled core: many in one call, which shares them out over threads."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from factormer.data import Matrix, counted
from factormer.kernels.core import width
from factormer.kernels.threads import threads
from factormer.many.deadline import Deadline
from factormer.many.jobs import Jobs
from factormer.many.reading import naming
from factormer.many.results import Summaries
from factormer.problem.checks import check_zeros
from factormer.run import core
from factormer.run.execute import more_seeds
from factormer.run.plan import Plan
from factormer.run.result import Result, Status
from factormer.run.settle import misfit_of
from factormer.run.trace import half_square

_CALL = 1e9  # multiplications, about, that a thread makes before results are handed out
_ITERATIONS = 100  # that a job takes, about


@dataclass(frozen=True, eq=False)
class Ended:
    """Jobs that one call ended, and the results that are made of them on demand."""

    jobs: Jobs
    indices: np.ndarray
    plans: list[Plan]
    matrices: list[Matrix]
    runs: list[core.Run]

    def summaries(self) -> Summaries:
        """The numbers of each."""
        if any(not plan.request.problem.is_free for plan in self.plans):
            results = [self.result(k) for k in range(len(self.runs))]
            rmse = np.array([float(result.rmse) for result in results])
        else:
            rmse = np.array([run.error for run in self.runs])
        error = np.array([run.error for run in self.runs])
        entries = np.array([counted(V) for V in self.matrices])
        n_iter = np.array([run.n_iter for run in self.runs])
        status = np.array([run.status.name for run in self.runs], object)
        return Summaries(rmse, half_square(error, entries), n_iter, status)

    def result(self, place: int) -> Result:
        """One of the results."""
        plan, V, run = self.plans[place], self.matrices[place], self.runs[place]
        as_given = self.jobs.as_given[int(self.jobs.problem[self.indices[place]])]
        own = run.alone()  # who gets it may write into it
        result = core.result_of(plan, own, V, as_given)
        if plan.request.problem.is_free:
            return result
        return replace(result, misfit=misfit_of(replace(plan.request.problem, V=V), result))


def factorized(jobs: Jobs, indices: list[int], deadline: Deadline) -> Iterator[Ended]:
    """Yield finished jobs, one call of the core at a time.

    After Ctrl-C, yield what had finished and raise KeyboardInterrupt.
    """
    for chunk in _chunks(jobs, indices):
        if deadline.is_over():
            return
        with threads():
            ended, is_interrupted = _called(jobs, chunk, deadline.until)
        whole = [k for k, run in enumerate(ended.runs) if run.status is not Status.INTERRUPTED]
        there = [k for k in whole if ended.runs[k].error < math.inf]
        if there:
            yield Ended(
                jobs,
                ended.indices[there],
                [ended.plans[k] for k in there],
                [ended.matrices[k] for k in there],
                [ended.runs[k] for k in there],
            )
        if is_interrupted:
            raise KeyboardInterrupt


def _called(jobs: Jobs, chunk: list[int], until: float | None) -> tuple[Ended, bool]:
    """Return jobs at their ends, of several runs of one the best; and whether Ctrl-C ended them."""
    started, lanes, counts = time.perf_counter(), list[core.Lane](), list[int]()
    plans, own, seeds = jobs.plans(chunk), jobs.matrices(chunk), jobs.seed[chunk].tolist()
    for index, plan, V, seed in zip(chunk, plans, own, seeds, strict=True):
        if plan.request.loss.has_pole:
            with naming(jobs.number(index)):
                check_zeros(V, plan.request.loss)
        some = core.lanes_of(plan, [seed, *more_seeds(seed, plan.n_runs)], V)
        counts.append(len(some))
        lanes += some
    runs = core.finished(lanes, started, until)
    firsts = np.cumsum([0, *counts])[:-1].tolist()
    groups = [runs[k : k + c] for k, c in zip(firsts, counts, strict=True)]
    begun = [k for k, group in enumerate(groups) if None not in group]  # before Ctrl-C
    best = [core.best_of([run for run in groups[k] if run is not None]) for k in begun]
    some = Ended(
        jobs, np.array(chunk)[begun], [plans[k] for k in begun], [own[k] for k in begun], best
    )
    is_interrupted = None in runs or any(run.status is Status.INTERRUPTED for run in best)
    return some, is_interrupted


def _chunks(jobs: Jobs, indices: list[int]) -> Iterator[list[int]]:
    """Indices in pieces of about the same work, enough of it for every thread."""
    if not indices:  # as where there is no core
        return
    wide, chunk, done = width(), list[int](), 0.0
    m, n, r = jobs.sizes
    work = _ITERATIONS * (m * n * r).astype(float)
    for index in indices:
        chunk.append(index)
        done += work[index]
        if done >= _CALL * wide and len(chunk) >= 2 * wide:
            yield chunk
            chunk, done = [], 0.0
    if chunk:
        yield chunk
