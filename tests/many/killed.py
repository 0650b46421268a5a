"""Sweeps that are killed, and several at once: run as a program, it prints what it saw as JSON.

It forks, since a new process would take seconds to load the package: `python killed.py FOLDER KILLS
{kernel,flags} {kernel,flags}`, with the locks of kills, and of several at once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import factormer
from factormer.data import locks
from factormer.many import folder as sweeps

OPTIONS: dict[str, Any] = {"ranks": 4, "n_init": 5, "max_iter": 150, "tol": 0.0}


def problems() -> list[Any]:
    rng = np.random.default_rng(0)
    dense = [rng.random((m, 30)) for m in (20, 40, 60)]
    sparse = scipy.sparse.csr_array(dense[0] * (dense[0] > 0.5))
    return [*dense, dense[0].astype(np.float32), sparse]


def sweep(folder: Path | None) -> list[Any]:
    results = factormer.factorize_many(problems(), folder=folder, **OPTIONS)
    return [(result.W, result.H, result.trace.rmse) for result in results]


def forked(work: Callable[[], object]) -> int:
    """The process that does this."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def is_same(first: list[Any], second: list[Any]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(np.array_equal(a, b) for pair in pairs for a, b in zip(*pair, strict=True))


def kills(folder: Path, count: int, expected: list[Any], seconds: float) -> dict[str, Any]:
    """Kill a sweep at random moments, until so many have hit it; a new one where it was done.

    Every other time after it has written a file, so that it goes on.
    """
    hits, ended, same, moments = 0, 0, True, random.Random(0)
    place = folder / "sweep-0"
    while hits < count:
        place = folder / f"sweep-{ended}"
        before = written(place)
        pid, how = forked(partial(sweep, place)), None
        while hits % 2 and how is None and written(place) == before:
            time.sleep(0.001)
            gone, status = os.waitpid(pid, os.WNOHANG)
            how = status if gone else None
        if how is None:
            time.sleep(moments.uniform(0, seconds / 10))
            os.kill(pid, signal.SIGKILL)
            _, how = os.waitpid(pid, 0)
        if os.WIFSIGNALED(how):
            hits += 1
        else:
            same &= is_same(sweep(place), expected)
            ended += 1
    pieces = written(place)
    same &= is_same(sweep(place), expected)
    return {"hits": hits, "ended": ended, "same": same, "pieces": pieces, "left": leavings(place)}


def together(folder: Path, expected: list[Any], *, killed: bool) -> dict[str, Any]:
    """Three processes at once, one of which may be killed while it holds a piece."""
    log, plain = folder / "log", sweeps.batches
    folder.mkdir()

    def noted(jobs: Any, *, until: float | None) -> Any:
        for batch in plain(jobs, until=until):
            with log.open("a") as file:
                for index in batch.indices:
                    file.write(f"{os.getpid()} {jobs.problem[index]} {jobs.run[index]}\n")
            yield batch
            if killed and os.getpid() == first:
                os.kill(first, signal.SIGKILL)

    def work() -> None:
        same = is_same(sweep(folder / "sweep"), expected)
        (folder / f"{'same' if same else 'other'}-{os.getpid()}").touch()

    sweeps.batches, first = noted, -1

    def begin() -> None:
        nonlocal first
        first = os.getpid()
        work()

    pids = [forked(begin), forked(work), forked(work)]
    for pid in pids:
        os.waitpid(pid, 0)
    sweeps.batches = plain
    done = [line.split() for line in log.read_text().splitlines()]
    return {
        "jobs": len(done),
        "different": len({(problem, run) for _, problem, run in done}),
        "workers": len({pid for pid, *_ in done}),
        "same": len(list(folder.glob("same-*"))),
        "other": len(list(folder.glob("other-*"))),
        "left": leavings(folder / "sweep"),
    }


def written(folder: Path) -> int:
    return len(list(folder.glob("piece-*")))


def leavings(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".*")]


def main() -> None:
    folder, count, *kinds = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    kernel = locks.fcntl
    sweeps._WORK, sweeps._SECONDS = (0.0, 1e7), 0.0  # many files, written often
    sweep(None)  # which compiles
    begun = time.perf_counter()
    expected = sweep(None)
    seconds = time.perf_counter() - begun
    locks.fcntl = kernel if kinds[0] == "kernel" else None
    told = {"kills": kills(folder, count, expected, seconds)}
    locks.fcntl = kernel if kinds[1] == "kernel" else None
    for name in ("together", "killed"):
        told[name] = together(folder / name, expected, killed=name == "killed")
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
