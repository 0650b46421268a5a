"""Carry many jobs out.

Jobs go to the chip of a GPU or to the compiled core where these serve. Of the rest, those with
one V beyond memory share its passes, light ones run on threads, and others one after another.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from factormer import kernels
from factormer.data import Blocks
from factormer.kernels.threads import narrow, threads, width
from factormer.many import beyond, chip, devices, lanes
from factormer.many.deadline import Deadline
from factormer.many.jobs import Jobs
from factormer.many.reading import naming
from factormer.many.results import Batch, Listed, Outcome
from factormer.run.execute import execute
from factormer.run.plan import Plan, Way
from factormer.run.result import Result, Status
from factormer.run.trace import half_square

_NO_CHIP = (
    "Nothing runs on the chip of the GPU (%s): one problem follows another, more slowly. To have "
    "it, mend the installation of CuPy."
)
_LIGHT = 2e7  # entries up to which one thread a problem is best


Task = Callable[[], list[Batch]]


def batches(jobs: Jobs, *, until: float | None) -> Generator[Batch, None, None]:
    """Yield jobs as they end; none begins after `until`, a reading of `time.perf_counter()`."""
    deadline, shares = Deadline(until), devices.shares(jobs)
    if len(shares) == 1 and not jobs.devices:
        yield from _batches(jobs, deadline)
        return
    run = partial(_batches, deadline=deadline)
    with closing(devices.side_by_side(jobs, shares, run, deadline.end)) as ended:
        yield from ended


@torch.no_grad()  # for whoever takes them: also one result at a time
def _batches(jobs: Jobs, deadline: Deadline) -> Generator[Batch, None, None]:
    """Yield the batches of one device."""
    left = np.ones(len(jobs), bool)
    for bucket in _on_chip(jobs, chip.served(jobs)):
        left[bucket.indices] = False
        yield bucket
    ways = _ways(jobs, np.flatnonzero(left).tolist())
    yield from lanes.factorized(jobs, ways.core, deadline)
    for ended in _at_once(_tasks(jobs, ways, deadline), deadline):
        yield from ended
    for group in (g for same in ways.beyond for g in beyond.groups(jobs, same)):
        if deadline.is_over():
            return
        for index, result in beyond.factorized(
            jobs, group, lambda k: _ready(jobs, k, deadline), deadline.is_ended
        ):
            yield _listed({index: _outcome(jobs, index, result)})
    for index in ways.alone:
        if deadline.is_over():
            return
        outcome = _alone(jobs, index, deadline)
        yield _listed({index: outcome})
        if outcome.status is Status.INTERRUPTED:  # which ends them all
            raise KeyboardInterrupt


class _Ways(NamedTuple):
    """Jobs by how they are carried out: by the core, alone, or by V if that is beyond memory."""

    core: list[int]
    alone: list[int]
    beyond: list[list[int]]


def _ways(jobs: Jobs, indices: list[int]) -> _Ways:
    ways, far = _Ways([], [], []), dict[int, list[int]]()
    for index, plan in zip(indices, jobs.plans(indices), strict=True):
        if isinstance(plan.request.problem.V, Blocks):
            far.setdefault(int(jobs.problem[index]), []).append(index)
        elif plan.way is Way.CORE:
            ways.core.append(index)
        else:
            ways.alone.append(index)
    ways.beyond.extend(far.values())
    return ways


def _on_chip(jobs: Jobs, indices: np.ndarray) -> list[chip.Bucket]:
    """The jobs that the chip took, in as many pieces as memory asks for.

    None where its kernels cannot be compiled or run.
    """
    if not len(indices):
        return []
    try:
        bucket, inputs = chip.factorized(jobs, indices)
        taken = bucket.accepted()  # which waits for the kernels
        del inputs  # until then they were read
    except torch.OutOfMemoryError:
        if len(indices) == 1:
            return []
        return [b for half in np.array_split(indices, 2) for b in _on_chip(jobs, half)]
    except Exception as error:
        kernels.say_once(_NO_CHIP, error)
        return []
    return [taken]


def _listed(outcomes: dict[int, Outcome]) -> Listed:
    return Listed(np.array(list(outcomes), int), list(outcomes.values()))


def _tasks(jobs: Jobs, ways: _Ways, deadline: Deadline) -> list[Task]:
    """Return what threads can do at the same time; each task ends at the deadline."""
    wide, tasks = width(), list[Task]()
    light = [index for index in ways.alone if _is_light(jobs.plan(index))]
    if wide > 1 and len(light) > 1:
        taken = set(light)
        ways.alone[:] = [index for index in ways.alone if index not in taken]
        tasks += [partial(_one, jobs, index, deadline) for index in light]
    return tasks


def _one(jobs: Jobs, index: int, deadline: Deadline) -> list[Batch]:
    return [] if deadline.is_over() else [_listed({index: _alone(jobs, index, deadline)})]


def _is_light(plan: Plan) -> bool:
    """Whether a single call would not use several threads well."""
    V = plan.request.problem.V
    return V.device.type == "cpu" and math.prod(V.shape) <= _LIGHT


def _at_once(tasks: list[Task], deadline: Deadline) -> Iterator[list[Batch]]:
    """Yield what the tasks return, as they end; each thread has one task at a time."""
    wide, before = width(), torch.get_num_threads()
    if wide == 1 or len(tasks) <= 1:
        for task in tasks:
            yield _carried_out(task)
        return
    waiting, pending = iter(tasks), set[Future[list[Batch]]]()
    pool = ThreadPoolExecutor(wide, "factormer-many", narrow, (1,))
    try:
        while True:
            for task in waiting:
                pending.add(pool.submit(_carried_out, task))
                if len(pending) > wide:
                    break
            if not pending:
                return
            ended, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
    except BaseException:  # Ctrl-C, or nobody wants more
        deadline.end()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # else threads that others start later would have one, too


@torch.no_grad()  # a setting of each thread
def _carried_out(task: Task) -> list[Batch]:
    """Carry out a task as a single call would: with one thread for torch, and no gradients.

    Other settings change which products torch makes, and so the last bits of a result.
    """
    with threads():
        return task()


def _alone(jobs: Jobs, index: int, deadline: Deadline) -> Outcome:
    """Return what a single call would return."""
    (result,) = execute(_ready(jobs, index, deadline), watch=lambda *_: deadline.is_ended())
    return _outcome(jobs, index, result)


def _ready(jobs: Jobs, index: int, deadline: Deadline) -> Plan:
    """Return the plan of a job, limited to the time that is left."""
    with naming(jobs.number(index)):
        plan = jobs.ready(index)
    if deadline.until is None:
        return plan
    left = max(deadline.until - time.perf_counter(), 1e-3)
    limits = plan.request.limits._replace(time_limit=left)
    return replace(plan, request=replace(plan.request, limits=limits))


def _outcome(jobs: Jobs, index: int, result: Result) -> Outcome:
    result = replace(result, as_given=jobs.as_given[int(jobs.problem[index])])
    loss = float(half_square(float(result.error), result.trace.entries))
    return Outcome(float(result.rmse), loss, result.n_iter, result.status, lambda: result)
