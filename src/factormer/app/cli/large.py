"""`factormer fit` of a file beyond memory, with progress in passes."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from factormer.app.cli.app import ended_as_interrupted, print_json
from factormer.app.cli.bar import of_entry

_SKETCH = 2  # passes that make it, after which the first gradient of V is known


def fit_large(
    file: Path,
    source: Any,
    ranks: list[int],
    out: Path,
    *,
    options: dict[str, Any],
    refused: dict[str, Any],
    fresh: bool,
    memory_limit: str | None,
    as_json: bool,
    progress: bool | None,
) -> None:
    """Fit in blocks, print the results, and refuse what needs V in memory."""
    from factormer.app.runs.large import fit_in_blocks
    from factormer.data.outofcore import blocks_of
    from factormer.problem.losses import as_loss

    for name, value in refused.items():
        if value is not None and value is not False and value != []:
            raise ValueError(
                f"--{name} is for data in memory, and {file} is read in blocks: leave it out, or "
                "raise --memory-limit"
            )
    V = blocks_of(source, memory_limit)
    m, n = V.shape
    if not as_json:
        size = source.nbytes / 1e9
        print(f"{file}: {m}×{n}, {source.kind}, {size:.3g} GB in {len(V.reader.ends) - 1} blocks")  # pyright: ignore[reportAttributeAccessIssue]
    described = {"file": str(file), "shape": [m, n], "options": options}
    squares = as_loss(options["loss"]).is_quadratic
    bar = _PassBar(V, max_iter=options["max_iter"], squares=squares, shown=progress)
    with bar, ended_as_interrupted():
        results = fit_in_blocks(
            V,
            ranks,
            options,
            out,
            described=described,
            fresh=fresh,
            begin=bar.begin,
            watch=bar.watch,
        )
    interrupted = any(result.status == "INTERRUPTED" for result in results)
    if as_json:
        rows = [vars(result) for result in results]
        print_json({"schema": 1, "run": str(out), **described, "results": rows})
    else:
        name = "RMSE" if squares else "divergence"
        print(f"  rank  {name:>10}  explained  iterations  passes   seconds  status")
        for r in results:
            explained = "–" if r.explained is None else f"{r.explained:.2%}"
            error = of_entry(r.rmse, squares)
            print(
                f"  {r.rank:4d}  {error:10.5g}  {explained:>9}  {r.iterations:10d}  "
                f"{r.passes:6d}  {r.seconds:8.2f}  {r.status.lower().replace('_', ' ')}"
            )
        print(f"factors: {out}")
    if interrupted:
        raise typer.Exit(130)


class _PassBar:
    """Progress on stderr: the pass and how much of it is done, seconds left, and the error.

    Where that is no terminal and progress was asked for, a line after each pass.
    """

    def __init__(self, V: Any, *, max_iter: int, squares: bool, shown: bool | None) -> None:
        self._squares, console = squares, Console(stderr=True)
        self._outlook = Outlook(max_iter)
        self._lines, self._rank, self._told = bool(shown) and not console.is_terminal, 0, 0
        self._column, self._console = _Passes(V, self._outlook), console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            self._column,
            TextColumn("{task.fields[state]}"),
            console=console,
            disable=self._lines or not (console.is_terminal if shown is None else shown),
            transient=True,
        )
        self._task = self._progress.add_task("reading", total=None, state="")

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, rank: int) -> None:
        """Show the next rank."""
        self._outlook.begin()
        self._rank, self._told = rank, 0
        self._progress.update(self._task, description=f"rank {rank}", state="")

    def watch(self, row: Any) -> None:
        """Show an iteration."""
        self._outlook.watch(row)
        state = f"iteration {row.iteration}  error {of_entry(row.rmse, self._squares):.5g}"
        self._progress.update(self._task, state=state)
        if self._lines and row.passes > self._told:
            self._told = row.passes
            said = f"rank {self._rank}  {self._column.text()}  {state}"
            self._console.print(said, highlight=False, soft_wrap=True)


class Outlook:
    """How many passes a rank may still take, by how fast its gradient falls to the tolerance.

    The gradient falls by about the same factor in each pass, that of its last passes; it is known
    from the second pass with it on. Before that, and with tol=0, there is no telling.
    """

    def __init__(self, max_iter: int) -> None:
        self._max_iter = max_iter
        self.begin()

    def begin(self) -> None:
        """Another rank begins."""
        self._gaps: dict[int, float] = {}  # after each pass with a gradient of V
        self._row: Any = None

    def watch(self, row: Any) -> None:
        """An iteration; its gap is that of the one before."""
        before, self._row = self._row, row
        if before is not None and before.passes > _SKETCH and row.gap > 0:
            self._gaps[before.passes] = row.gap

    def passes(self) -> int | None:
        """The passes after the last iteration; None where there is no telling."""
        if len(self._gaps) < 2:
            return None
        (p, old), *_, (q, new) = list(self._gaps.items())[-3:]
        most = self._max_iter - self._row.iteration
        fall = math.log(old / new) / (q - p)
        if fall <= 0:
            return most
        needed = math.ceil(math.log(max(new, 1.0)) / fall) - (self._row.passes - q)
        return min(max(needed, 0), most)


class _Passes(ProgressColumn):
    """Which pass it is, those that were kept counted, how far it is, and seconds to come."""

    def __init__(self, V: Any, outlook: Outlook | None = None) -> None:
        super().__init__()
        self._V, self._began, self._outlook = V, time.perf_counter(), outlook

    def render(self, task: Task) -> Text:
        """The column."""
        return Text(self.text())

    def text(self) -> str:
        """Return the line as it reads now."""
        reader, number = self._V.reader, self._V.record.passes
        rows, m = reader.traffic.n_rows, self._V.shape[0]
        if not rows:
            return f"pass {max(number, 1)}"
        pace = (time.perf_counter() - self._began) * m / rows
        here = (rows % m or m) / m
        more = None if self._outlook is None else self._outlook.passes()
        text = f"pass {number} at {here:.0%}, {pace:.2g} s a pass"
        if more is not None:
            left = pace * (max(more, 0) - (here if here < 1 else 0))
            text += f", about {more} more: {wait(max(left, 0.0))}"
        return text


def wait(seconds: float) -> str:
    """A time to wait in words: "40 s", "12 min", "2.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
