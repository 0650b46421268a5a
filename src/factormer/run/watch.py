"""Watching a fit: a progress bar, and what scikit-learn's callbacks are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from factormer.data.factors import Factors
from factormer.run.stop import Glance, Watch
from factormer.run.trace import Trace


def bar(shown: bool, total: int) -> AbstractContextManager[Watch | None]:
    """A bar that follows the iterations, in a terminal or a notebook; one line elsewhere."""
    return _bar(total) if shown else nullcontext()


@contextmanager
def _bar(total: int) -> Iterator[Watch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = ("NMF", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[error]}")) as progress:
        task, done, since = progress.add_task("NMF", total=total, error=""), 0, _Counter()

        def look(x: Factors, trace: Trace) -> bool:
            nonlocal done
            row = trace.last
            done += since(row.iteration)
            error = f"RMSE {float(trace.unit * row.rmse):.4g}"
            progress.update(task, completed=done, error=error)
            return False

        yield look
        progress.update(task, total=max(done, 1), completed=max(done, 1))


@contextmanager
def counted(shown: bool, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that counts what is done, and says how long the rest will take."""
    if not shown:
        yield lambda n: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = ("NMF", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("NMF", total=total)
        yield lambda n: progress.advance(task, n)


class _Counter:
    """How many iterations are new since the last call; a new run counts from 0."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, iteration: int) -> int:
        new = iteration - self._last if iteration > self._last else iteration
        self._last = iteration
        return new


class Hooks:
    """One fit for scikit-learn's callbacks: a task, whose subtasks are iterations."""

    def __init__(self, estimator: Any, X: Any, total: int) -> None:
        self.estimator, self.X = estimator, X
        self.context = estimator._init_callback_context(max_subtasks=total)
        self.context.call_on_fit_task_begin(estimator=estimator, X=X)
        self._since = _Counter()

    @staticmethod
    def of(estimator: Any, X: Any, total: int) -> Hooks | None:
        """The hooks of an estimator with callbacks, its own or those of an enclosing estimator."""
        return Hooks(estimator, X, total) if getattr(estimator, "_skl_callbacks", None) else None

    def look(self, x: Factors, trace: Trace) -> bool:
        """Report each new iteration; True if a callback asks to stop.

        Iterations made at once are reported one after another, all with their last point.
        """
        new = self._since(trace.last.iteration)
        return any(self._report(x) for _ in range(new))

    def _report(self, x: Factors) -> bool:
        fit = {"estimator": self.estimator, "X": self.X}
        task = self.context.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(**fit)
        return task.call_on_fit_task_end(
            **fit, reconstruction_attributes=lambda: {"components_": x.H.mT.cpu().numpy()}
        )

    def end(self) -> None:
        """Report the end of the fit."""
        attributes = {"components_": self.estimator.components_}
        self.context.call_on_fit_task_end(
            estimator=self.estimator, X=self.X, reconstruction_attributes=attributes
        )


def all_of(*watches: Watch | None) -> Watch | None:
    """All watches as one, of which none looks at W; None if there are none."""
    present = [watch for watch in watches if watch is not None]
    if not present:
        return None
    return Glance(lambda x, trace: any([watch(x, trace) for watch in present]))
