"""fit_in_blocks(): factorize data beyond memory at each rank, and keep factors and trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from factormer.app.runs.check import REMEDY, check_taken, of_other_options
from factormer.app.runs.folder import PASSES, RunFolder, dump
from factormer.app.runs.stored import SCHEMA, built
from factormer.data.blocks import Blocks
from factormer.data.files import replacing, write
from factormer.data.journal import about, check_passes, forget_passes, keep_passes
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
    fresh: bool = False,
    begin: Callable[[int], object] = lambda rank: None,
    watch: Callable[[Row], object] | None = None,
) -> list[LargeResult]:
    """Factorize V at each rank that is not done yet; the sketch of the highest serves all of them.

    Each rank gets a folder with W.npy, H.npy and trace.csv; run.json has options and results. There
    is no report: it would read V more often than the fit. Until all is done, passes over V are kept
    too, and the same command continues after them.
    """
    run, passes = RunFolder(folder), folder / PASSES
    description = {"schema": SCHEMA, **described, "options": options, "passes_over": about(V)}
    _earlier(run, description, fresh=fresh)
    with run.held():
        results = _earlier(run, description, fresh=fresh)  # again, with the folder locked
        if fresh:
            run.clear()
            forget_passes(passes)
        todo = [rank for rank in sorted(set(ranks), reverse=True) if not _is_done(results, rank)]
        if todo:
            _describe(run, description, results)
            with _kept_passes(V, passes, options["random_state"]) as is_done:
                for rank in todo:
                    begin(rank)
                    before = V.record.passes
                    result = factorize(V, rank, callback=watch, **options)
                    results[rank] = _in_numbers(V, rank, result, V.record.passes - before)
                    _keep(run.rank(rank), result)
                    _describe(run, description, results)
                    if not _is_done(results, rank):
                        break
                else:
                    is_done.set()
    return [results[rank] for rank in sorted(set(ranks)) if rank in results]


def _is_done(results: dict[int, LargeResult], rank: int) -> bool:
    return rank in results and results[rank].status != "INTERRUPTED"


def _describe(run: RunFolder, description: dict[str, Any], results: dict[int, LargeResult]) -> None:
    rows = [vars(results[rank]) for rank in sorted(results)]
    write(run.path / "run.json", dump({**description, "results": rows}))


def _earlier(run: RunFolder, description: dict[str, Any], *, fresh: bool) -> dict[int, LargeResult]:
    """Results of the same data and options; a folder of others, or with other files, is refused."""
    passes = run.path / PASSES
    check_taken(run)
    check_passes(passes)
    if fresh:
        return {}
    before = run.in_blocks()
    if before is None:
        if run.is_begun():
            raise ValueError(f"{run.path} holds a run on data in memory; {REMEDY}")
        return {}
    file = run.path / "run.json"
    found = [built(LargeResult, row, file) for row in before["results"]]
    if not found and not any(passes.glob("pass-*.npz")):
        return {}
    if before["passes_over"] != description["passes_over"]:
        raise ValueError(f"{run.path} holds a run on other data; {REMEDY}")
    for name, value in description["options"].items():
        if (was := before["options"].get(name)) != value:
            raise of_other_options(run, name, was, value)
    whole = [r for r in found if all((run.rank(r.rank) / f"{F}.npy").is_file() for F in "WH")]
    return {result.rank: result for result in whole}


@contextmanager
def _kept_passes(V: Blocks, folder: Path, seed: int) -> Iterator[Event]:
    """Keep passes in a folder until all is done."""
    is_done = Event()
    with ExitStack() as after, keep_passes(V, folder, seed):
        after.callback(_forget, folder, is_done)
        yield is_done


def _forget(folder: Path, is_done: Event) -> None:
    """Remove passes that nobody will ask for."""
    if is_done.is_set() or not any(folder.glob("pass-*.npz")):
        forget_passes(folder)


def _in_numbers(V: Blocks, rank: int, result: Result, passes: int) -> LargeResult:
    m, n = V.shape
    rmse = float(result.rmse)
    squares = result.trace.measure == "RMSE"
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
