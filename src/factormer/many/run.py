"""Carry many jobs out: on a GPU's chip, compiled on threads, or one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np
import torch

from factormer import kernels
from factormer.many import chip, whole
from factormer.many.jobs import Jobs
from factormer.many.results import Batch, Listed, Outcome
from factormer.run.execute import execute

_NO_CHIP = (
    "Nothing runs on the chip of the GPU (%s): one problem follows another, more slowly. To have "
    "it, mend the installation of CuPy."
)
_CHUNK = 2e7  # multiplications, about, that a thread makes before it hands over
Some = Callable[[list[int]], dict[int, Outcome | None]]


def batches(jobs: Jobs, *, until: float | None) -> Generator[Batch, None, None]:
    """Jobs as they end; none begins after `until`, a reading of `time.perf_counter()`."""
    left = np.ones(len(jobs), bool)
    on_chip = chip.served(jobs)
    bucket = _on_chip(jobs, on_chip) if len(on_chip) else None
    if bucket is not None:
        left[bucket.indices] = False
        yield bucket
    alone: list[int] = []
    threaded: list[int] = []
    routes: dict[int, list[int]] = {}  # by the plan that jobs of one kind share
    for index in np.flatnonzero(left).tolist():
        plan = jobs.plan(index)
        if id(plan) not in routes:
            routes[id(plan)] = threaded if whole.serves(plan) else alone
        routes[id(plan)].append(index)
    for done in _threaded(jobs, threaded, until):
        ended = {index: outcome for index, outcome in done.items() if outcome is not None}
        alone += [index for index in done if index not in ended]
        if ended:
            yield _listed(ended)
    for index in alone:
        if until is not None and time.perf_counter() >= until:
            return
        yield _listed({index: _alone(jobs, index, until)})


def _on_chip(jobs: Jobs, indices: np.ndarray) -> chip.Bucket | None:
    """The jobs that the chip took; None where its kernels cannot be compiled or run."""
    try:
        bucket, inputs = chip.factorized(jobs, indices)
        taken = bucket.accepted()  # which waits for the kernels
        del inputs  # until then they were read
    except Exception as error:
        kernels.say_once(_NO_CHIP, error)
        return None
    return taken


def _listed(outcomes: dict[int, Outcome]) -> Listed:
    return Listed(np.array(list(outcomes), int), list(outcomes.values()))


def _threaded(
    jobs: Jobs, indices: list[int], until: float | None
) -> Iterator[dict[int, Outcome | None]]:
    """Jobs for compiled code, in chunks, on as many threads as torch may use."""
    width, chunks = torch.get_num_threads(), _chunks(jobs, indices)

    def some(chunk: list[int]) -> dict[int, Outcome | None]:
        done: dict[int, Outcome | None] = {}
        for index in chunk:
            if until is not None and time.perf_counter() >= until:
                break
            done[index] = whole.factorized(jobs, index)
        return done

    if width == 1 or len(chunks) <= 1:
        return map(some, chunks)
    return _pooled(some, chunks, width)


def _pooled(some: Some, chunks: list[list[int]], width: int) -> Iterator[dict[int, Outcome | None]]:
    waiting, pending = iter(chunks), set[Future[dict[int, Outcome | None]]]()
    pool = ThreadPoolExecutor(width, "factormer-many")
    try:
        while True:
            for chunk in waiting:
                pending.add(pool.submit(some, chunk))
                if len(pending) > width:
                    break
            if not pending:
                return
            ended, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _chunks(jobs: Jobs, indices: list[int]) -> list[list[int]]:
    """Indices in pieces of about the same work."""
    chunks: list[list[int]] = []
    work = float("inf")
    for index in indices:
        request = jobs.plan(index).request
        m, n = request.problem.V.shape
        if work > _CHUNK:
            chunks.append([])
            work = 0.0
        chunks[-1].append(index)
        work += min(request.limits.max_iter, 100) * m * n * float(jobs.rank[index])
    return chunks


def _alone(jobs: Jobs, index: int, until: float | None) -> Outcome:
    """What a single call would return."""
    try:
        plan = jobs.ready(index)
    except (ValueError, TypeError) as error:
        raise type(error)(f"problem {jobs.problem[index]}: {error}") from error
    if until is not None:
        left = max(until - time.perf_counter(), 1e-3)
        limits = plan.request.limits._replace(time_limit=left)
        plan = replace(plan, request=replace(plan.request, limits=limits))
    (result,) = execute(plan)
    result = replace(result, as_given=jobs.as_given[int(jobs.problem[index])])
    return Outcome(float(result.error), result.n_iter, result.status, lambda: result)
