"""Carry many jobs out: on a GPU's chip, compiled on threads, or one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from factormer import kernels
from factormer.many import chip, shared, whole
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
    ways = _ways(jobs, np.flatnonzero(left).tolist())
    for done in _threaded(jobs, ways, until):
        ended = {index: outcome for index, outcome in done.items() if outcome is not None}
        ways.alone.extend(index for index in done if index not in ended)
        if ended:
            yield _listed(ended)
    for index in ways.alone:
        if until is not None and time.perf_counter() >= until:
            return
        yield _listed({index: _alone(jobs, index, until)})


class _Ways(NamedTuple):
    """Jobs by how they are carried out: side by side by V and rank, compiled, or alone."""

    shared: list[list[int]]
    whole: list[int]
    alone: list[int]


def _ways(jobs: Jobs, indices: list[int]) -> _Ways:
    same: dict[tuple[int, int], list[int]] = {}
    ways, routes = _Ways([], [], []), dict[int, list[int]]()  # by the plan that some jobs share
    for index in indices:
        plan = jobs.plan(index)
        if id(plan) not in routes:
            routes[id(plan)] = ways.whole if whole.serves(plan) else ways.alone
        route = routes[id(plan)]
        if route is ways.alone and jobs.resample is None:
            same.setdefault((int(jobs.problem[index]), int(jobs.rank[index])), []).append(index)
        else:
            route.append(index)
    for group in same.values():
        if len(group) > 1 and shared.serves(jobs.plan(group[0])):
            ways.shared.append(group)
        else:
            ways.alone.extend(group)
    return ways


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


def _threaded(jobs: Jobs, ways: _Ways, until: float | None) -> Iterator[dict[int, Outcome | None]]:
    """Jobs for compiled code, in chunks, on as many threads as torch may use."""
    threads = torch.get_num_threads()
    pieces = [piece for group in ways.shared for piece in _pieces(jobs, group, threads)]
    chunks = [*pieces, *_chunks(jobs, ways.whole)]

    def some(chunk: list[int]) -> dict[int, Outcome | None]:
        if until is not None and time.perf_counter() >= until:
            return {}
        if is_shared[chunk[0]]:
            return shared.factorized(jobs, chunk, until)
        done: dict[int, Outcome | None] = {}
        for index in chunk:
            if until is not None and time.perf_counter() >= until:
                break
            done[index] = whole.factorized(jobs, index)
        return done

    is_shared = np.zeros(len(jobs), bool)
    is_shared[[index for piece in pieces for index in piece]] = True
    if threads == 1 or len(chunks) <= 1:
        return map(some, chunks)
    return _pooled(some, chunks, threads)


def _pieces(jobs: Jobs, group: list[int], threads: int) -> list[list[int]]:
    """Jobs that share V and rank, in as many parts as there are threads, or more if they are many.

    Each part is at least as long as lines are wide, if there are enough.
    """
    plan = jobs.plan(group[0])
    wide = shared.width(plan.request.problem.V, plan.request.problem.rank)  # pyright: ignore
    count = min(len(group), max(threads, len(group) // (4 * wide)))
    return [group[k::count] for k in range(count)]


def _pooled(some: Some, chunks: list[list[int]], width: int) -> Iterator[dict[int, Outcome | None]]:
    waiting, pending = iter(chunks), set[Future[dict[int, Outcome | None]]]()
    pool = ThreadPoolExecutor(width, "factormer-many", torch.set_num_threads, (1,))
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
