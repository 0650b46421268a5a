"""fit_in_blocks(): factorize data beyond memory at each rank, and keep factors and trace."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from factormer.app.runs.folder import dump
from factormer.data.blocks import Blocks
from factormer.data.files import replacing, write
from factormer.data.journal import keep_passes
from factormer.data.locks import held
from factormer.functions import factorize
from factormer.run.result import Result
from factormer.run.trace import Row


@dataclass(frozen=True)
class LargeResult:
    """One rank of data beyond memory, in numbers; `explained` is of the squares, if those count."""

    rank: int
    status: str
    iterations: int
    passes: int
    seconds: float
    rmse: float
    explained: float | None


def fit_in_blocks(
    V: Blocks,
    ranks: Sequence[int],
    options: dict[str, Any],
    folder: Path,
    *,
    described: dict[str, Any],
    begin: Callable[[int], object] = lambda rank: None,
    watch: Callable[[Row], object] | None = None,
) -> list[LargeResult]:
    """Factorize V at each rank; the sketch of the highest serves all of them.

    Each rank gets a folder with W.npy, H.npy and trace.csv; run.json has options and results. There
    is no report: it would read V more often than the fit. Until all is done, passes over V are kept
    too, and the same command continues after them.
    """
    results: list[LargeResult] = []
    with held(folder), _kept_passes(V, folder / "passes") as is_done:
        for rank in sorted(set(ranks), reverse=True):
            begin(rank)
            before = V.record.passes
            result = factorize(V, rank, callback=watch, **options)
            results.insert(0, _in_numbers(V, rank, result, V.record.passes - before))
            _keep(folder / f"rank-{rank}", result)
            rows = [vars(found) for found in results]
            write(folder / "run.json", dump({"schema": 1, **described, "results": rows}))
            if result.status.name == "INTERRUPTED":
                break
        else:
            is_done.set()
    return results


@contextmanager
def _kept_passes(V: Blocks, folder: Path) -> Iterator[Event]:
    """Keep passes in a folder until all is done; those of another fit, left there, are removed."""
    try:
        keep_passes(V, folder, 0)
    except ValueError:
        shutil.rmtree(folder)
        keep_passes(V, folder, 0)
    is_done = Event()
    try:
        yield is_done
    finally:
        if is_done.is_set() or not list(folder.glob("pass-*")):
            shutil.rmtree(folder, ignore_errors=True)


def _in_numbers(V: Blocks, rank: int, result: Result, passes: int) -> LargeResult:
    m, n = V.shape
    rmse = float(result.rmse)
    squares = result.plan is not None and "squared error" in result.plan.asked
    return LargeResult(
        rank=rank,
        status=result.status.name,
        iterations=result.n_iter,
        passes=passes,
        seconds=float(result.trace.seconds[-1]),
        rmse=rmse,
        explained=1 - rmse**2 * m * n / float(V.sq_norm()) if squares else None,
    )


def _keep(folder: Path, result: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, F in (("W", result.W), ("H", result.H)):
        with replacing(folder / f"{name}.npy") as file:
            np.save(file, F)
    trace = result.trace
    columns = (trace.iteration, trace.passes, trace.seconds, trace.rmse)
    rows = (f"{t},{p},{s:.9g},{e:.9g}" for t, p, s, e in zip(*columns, strict=True))
    write(folder / "trace.csv", "\n".join(["iteration,passes,seconds,rmse", *rows]) + "\n")
