"""Results of many factorizations: a sequence, each made when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, overload, runtime_checkable

import numpy as np

from factormer.data.frame import frame_of
from factormer.many.jobs import Jobs
from factormer.run.result import Result, Status


class Summaries(NamedTuple):
    """Results in numbers, an array each."""

    rmse: np.ndarray
    loss: np.ndarray
    n_iter: np.ndarray
    status: np.ndarray  # names


@runtime_checkable
class Batch(Protocol):
    """Jobs that ended together: their indices, numbers, and results one by one."""

    @property
    def indices(self) -> np.ndarray: ...

    def summaries(self) -> Summaries: ...

    def result(self, place: int) -> Result: ...


class Outcome(NamedTuple):
    """How one job ended: in numbers, and the function that makes its result."""

    rmse: float
    loss: float
    n_iter: int
    status: Status
    result: Callable[[], Result]


class Listed(NamedTuple):
    """A batch of outcomes."""

    indices: np.ndarray
    outcomes: list[Outcome]

    def summaries(self) -> Summaries:
        """The numbers of each."""
        rmse, loss, n_iter, status, _ = zip(*self.outcomes, strict=True)
        names = np.array([s.name for s in status], object)
        return Summaries(np.array(rmse, float), np.array(loss, float), np.array(n_iter, int), names)

    def result(self, place: int) -> Result:
        """One of the results."""
        return self.outcomes[place].result()


class Renumbered(NamedTuple):
    """A batch of some of the jobs, with their indices among all."""

    batch: Batch
    indices: np.ndarray

    def summaries(self) -> Summaries:
        """The numbers of each."""
        return self.batch.summaries()

    def result(self, place: int) -> Result:
        """One of the results."""
        return self.batch.result(place)


class Results(Sequence[Any]):
    """Results in the order of the problems; `table()` has a row for each.

    After a time limit or Ctrl-C some are missing: `done` says which are there,
    and `status` why.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._batches: list[Batch] = []
        self._batch, self._place = (np.full(len(jobs), -1) for _ in range(2))
        self.status: Status | None = None

    def add(self, batch: Batch) -> None:
        """Take in jobs that have ended."""
        self._batch[batch.indices] = len(self._batches)
        self._place[batch.indices] = np.arange(len(batch.indices))
        self._batches.append(batch)

    @property
    def done(self) -> np.ndarray:
        """Which results are there."""
        return self._batch >= 0

    def __len__(self) -> int:
        return len(self._batch)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        if self._batch[index] < 0:
            problem, rank, run, _ = self._jobs[index]
            why = "" if self.status is None else f" ({self.status.name})"
            raise LookupError(
                f"job {index} (problem {problem}, rank {rank}, run {run}) was not done{why}; "
                "`done` says which were"
            )
        return self._batches[self._batch[index]].result(int(self._place[index]))

    def __iter__(self) -> Iterator[Result]:
        return (self[k] for k in range(len(self)))

    def columns(self) -> dict[str, np.ndarray]:
        """The table as arrays: problem, rank, run, seed, rmse, loss, n_iter, status of each job."""
        jobs, count = self._jobs, len(self)
        rmse, loss, n_iter = np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, int)
        status = np.full(count, "MISSING", object)
        for batch in self._batches:
            at = batch.indices
            rmse[at], loss[at], n_iter[at], status[at] = batch.summaries()
        found = {"rmse": rmse, "loss": loss, "n_iter": n_iter, "status": status.astype(str)}
        return {
            name: getattr(jobs, name).copy() for name in ("problem", "rank", "run", "seed")
        } | found

    @property
    def rmse(self) -> np.ndarray:
        """The root mean square error of each; NaN where there is none."""
        return self.columns()["rmse"]

    def table(self) -> Any:
        """A pandas DataFrame with a row for each job."""
        return frame_of(self.columns())

    def __repr__(self) -> str:
        done = int(self.done.sum())
        missing = "" if done == len(self) else f", {len(self) - done} missing"
        return f"<Results: {len(self)} factorizations{missing}{self._median() if done else ''}>"

    def _median(self) -> str:
        """Return the median RMSE in words, or that of the objective or of another loss an entry."""
        rmse, measure = np.nanmedian(self.rmse), self._jobs.plan(0).request.problem.measure
        if measure == "RMSE":
            return f", median RMSE {rmse:.4g}"
        if measure == "objective":
            return f", median objective {np.nanmedian(self.columns()['loss']):.4g}"
        return f", median {measure} {rmse**2 / 2:.4g} an entry"
