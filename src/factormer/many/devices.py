"""Jobs on several devices: a share for each, of about equal work, and a thread that sees to it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch

from factormer.data import Dense
from factormer.data.device import moved
from factormer.kernels.threads import narrow, width
from factormer.many.jobs import Jobs
from factormer.many.loose import Loose
from factormer.many.results import Batch, Renumbered
from factormer.sentence import Sentence

Run = Callable[[Jobs], Generator[Batch, None, None]]


class Share(NamedTuple):
    """The jobs of one device."""

    device: torch.device
    indices: np.ndarray


def shares(jobs: Jobs) -> list[Share]:
    """A share for each device: of those asked for, or of those that the matrices are on.

    One share where there is one device. Matrices stay with their jobs, unless there are fewer of
    them than devices.
    """
    if len(jobs.devices) < 2:
        return _where_they_are(jobs)
    unit = jobs.problem
    if len(np.unique(unit)) < len(jobs.devices):
        unit = np.arange(len(jobs))
    m, n, r = jobs.sizes
    work = np.bincount(unit, (m * n * r).astype(float))
    taken = dealt(work, len(jobs.devices))[unit]
    each = (np.flatnonzero(taken == k) for k in range(len(jobs.devices)))
    return [Share(at, some) for at, some in zip(jobs.devices, each, strict=True) if len(some)]


def _where_they_are(jobs: Jobs) -> list[Share]:
    sources = jobs.sources
    if jobs.devices or not isinstance(sources, list):
        return [Share(jobs.device, np.arange(len(jobs)))]
    devices = list(dict.fromkeys(V.device for V in sources))
    if len(devices) == 1:
        return [Share(devices[0], np.arange(len(jobs)))]
    at = np.array([devices.index(V.device) for V in sources])[jobs.problem]
    return [Share(device, np.flatnonzero(at == k)) for k, device in enumerate(devices)]


def dealt(work: np.ndarray, count: int) -> np.ndarray:
    """Who takes each, of `count`: the largest first, each time whoever has the least."""
    taken, loads = np.zeros(len(work), int), [(0.0, k) for k in range(count)]
    for unit in np.argsort(-work, kind="stable").tolist():
        load, k = loads[0]
        taken[unit] = k
        heapq.heapreplace(loads, (load + float(work[unit]), k))
    return taken


def side_by_side(
    jobs: Jobs, some: Sequence[Share], run: Run, end: Callable[[], None]
) -> Generator[Batch, None, None]:
    """Batches of all shares as they end, each by `run` in a thread of its own.

    After Ctrl-C, `end` tells them to stop, and what they had done comes before the interrupt. An
    error in one ends all. Shares of the CPU have its threads to equal parts.
    """
    wide, before = width(), torch.get_num_threads()
    each = max(wide // max(sum(share.device.type == "cpu" for share in some), 1), 1)
    said: SimpleQueue[Batch | BaseException | None] = SimpleQueue()
    threads = [
        Thread(
            target=_serve,
            args=(jobs, share, run, said, each if share.device.type == "cpu" else wide),
            name=f"factormer-{share.device}",
        )
        for share in some
    ]
    left, started = len(threads), list[Thread]()
    try:
        for thread in threads:
            started.append(thread)
            thread.start()
        while left:
            batch = said.get()
            left -= batch is None
            if isinstance(batch, BaseException):
                raise batch
            if batch is not None:
                yield batch
    except KeyboardInterrupt:
        _joined(started, end)
        while not said.empty():  # all have said what they had to
            batch = said.get()
            if batch is not None and not isinstance(batch, BaseException):
                yield batch
        raise
    finally:
        _joined(started, end)
        torch.set_num_threads(before)  # else threads that others start later would have one, too


def _joined(threads: list[Thread], end: Callable[[], None]) -> None:
    end()
    for thread in threads:
        if thread.ident is not None:  # it was started
            thread.join()


def _serve(jobs: Jobs, share: Share, run: Run, said: SimpleQueue[Any], width: int) -> None:
    """Carry a share out on so many threads; what it says last is None."""
    narrow(width)  # what torch says here depends on what other shares are at
    on_gpu = share.device.type == "cuda"
    try:
        with (
            torch.cuda.device(share.device) if on_gpu else nullcontext(),
            closing(_placed(jobs, share, run)) as ended,
        ):
            for batch in ended:
                said.put(batch)
    except BaseException as error:  # told where it can be dealt with
        said.put(error)
    finally:
        said.put(None)


def _placed(jobs: Jobs, share: Share, run: Run) -> Generator[Batch, None, None]:
    """The batches of a share, half of it after the other where its data does not fit."""
    try:
        there = placed(jobs, share)
    except torch.OutOfMemoryError as error:
        if len(np.unique(jobs.problem[share.indices])) == 1:
            problem = jobs.number(int(share.indices[0]))
            raise ValueError(
                Sentence(
                    "problem {number} does not fit into the memory of {there!r}: pass it in blocks "
                    "({memory_limit}), or choose another device",
                    number=problem,
                    there=str(share.device),
                )
            ) from error
        there = None
    if there is None:
        middle = len(share.indices) // 2
        for half in np.split(share.indices, [middle]):
            yield from _placed(jobs, share._replace(indices=half), run)
        return
    with closing(run(there)) as ended:
        for batch in ended:
            yield Renumbered(batch, share.indices[batch.indices])


def placed(jobs: Jobs, share: Share) -> Jobs:
    """The jobs of a share with just the matrices that they need, on their device."""
    needed, problem = np.unique(jobs.problem[share.indices], return_inverse=True)
    move, sources = partial(moved, device=share.device), jobs.sources
    if isinstance(sources, Dense):
        stack = Dense(sources.entries[torch.from_numpy(needed).to(sources.device)])
        there: Any = move(stack)
    else:
        assert not isinstance(sources, Loose)
        there = [move(sources[k]) for k in needed.tolist()]
    numbers = np.array([jobs.number(int(k)) for k in share.indices[_firsts(problem)]])
    arrays = {name: getattr(jobs, name)[share.indices] for name in ("rank", "run", "seed")}
    as_given = [jobs.as_given[k] for k in needed.tolist()]
    return replace(
        jobs, sources=there, problem=problem, as_given=as_given, devices=(), numbers=numbers,
        **arrays,
    )  # fmt: skip


def _firsts(problem: np.ndarray) -> np.ndarray:
    return np.unique(problem, return_index=True)[1]
