"""The bar of `factormer fit`: how far each rank has come."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


def of_entry(rmse: Any, squares: bool) -> float:
    """An error as people are shown it: the RMSE, or the mean loss where that is not the squares.

    A trace has √(2·objective / entries) for every loss.
    """
    return float(rmse) if squares else float(rmse) ** 2 / 2


class Bar:
    """Progress on stderr: rank, error, iteration, and how long it may still take at most."""

    def __init__(
        self,
        ranks: list[int],
        max_iter: int,
        time_limit: float | None,
        n_init: int,
        *,
        squares: bool,
        shown: bool | None,
    ) -> None:
        console = Console(stderr=True)
        self.shown = console.is_terminal if shown is None else shown
        self._ranks, self._max_iter, self._time_limit = ranks, max_iter, time_limit
        self._n_init, self._squares = n_init, squares
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            console=console,
            disable=not self.shown,
            transient=True,
        )
        self._task = self._progress.add_task("reading", total=None, state="")

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, rank: int) -> None:
        """Show the next rank, before its first iteration."""
        several = len(self._ranks) > 1
        place = f" ({self._ranks.index(rank) + 1} of {len(self._ranks)})" if several else ""
        text = f"rank {rank}{place}"
        self._progress.update(self._task, total=None, completed=0, description=text, state="start")

    def watch(self, rank: int, row: Any) -> None:
        """Show an iteration; all that are left would take `left` seconds at this pace."""
        t = row.iteration
        left = row.seconds / max(t, 1) * (self._max_iter - t)
        if self._time_limit is not None:
            left = min(left, max(self._time_limit - row.seconds, 0.0))
        minutes, seconds = divmod(round(left), 60)
        state = (
            f"error {of_entry(row.rmse, self._squares):.5g}  iteration {t}/{self._max_iter}  "
            f"at most {minutes}:{seconds:02d} left"
        )
        self._progress.update(self._task, total=self._max_iter, completed=t, state=state)

    def ran(self, done: int, error: float) -> None:
        """Show how many runs of a rank are done."""
        state = f"error {of_entry(error, self._squares):.5g}  {done} of {self._n_init} runs"
        self._progress.update(self._task, total=self._n_init, completed=done, state=state)
