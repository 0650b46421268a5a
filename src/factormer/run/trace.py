"""The history of a run, iteration by iteration."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.frame import frame_of
from factormer.data.warn import warn


class Row(NamedTuple):
    """One iteration in a trace; for a stack of problems the error is one number each.

    `passes` says how often V was read up to here, and `gap`, told to callbacks alone, how many
    times smaller the gradient had to become for the tolerance when it was last looked at.
    """

    iteration: int
    seconds: float
    rmse: Float[Tensor, "*b"]
    passes: int = 0
    gap: float = math.nan


def half_square(rmse: Any, entries: Any) -> Any:
    """Return ½·entries·rmse²; infinite or 0 if it overflows or underflows float64."""
    with np.errstate(over="ignore", under="ignore"):
        return np.square(np.asarray(rmse, np.float64) * np.sqrt(np.asarray(entries) / 2))


def objective(rmse: Any, entries: Any) -> float | np.ndarray:
    """½·entries·rmse²; infinite or 0, with a warning, if it overflows or underflows float64."""
    rmse, value = np.asarray(rmse, np.float64), half_square(rmse, entries)
    if bool(((value == 0) & (rmse > 0)).any() or (np.isinf(value) & np.isfinite(rmse)).any()):
        warn(
            f"The loss is beyond float64, where the error of an entry is {rmse.max():g}: look at "
            "rmse instead, or divide V by its mean",
            RuntimeWarning,
        )
    return value if value.ndim else float(value)


class Trace:
    """The history of a run, one row per iteration; iteration 0 is the start.

    Errors are those on `unit`·V. A solver that makes many iterations at once adds them as one
    block, whose rows are made on demand.
    """

    def __init__(self, rows: Iterable[Row] = (), unit: Float[Tensor, "*b"] | float = 1.0) -> None:
        self._rows, self.unit = list(rows), unit
        self.entries: Any = 1.0  # how many entries of V count
        self.measure = "RMSE"  # or what was minimised instead, of which `loss` is the value
        self._block: tuple[Tensor, np.ndarray, np.ndarray] | None = None  # columns of later rows

    @staticmethod
    def of(rmse: Float[Tensor, " k"], seconds: np.ndarray, passes: np.ndarray) -> Trace:
        """Return a trace with a row for each error, at least one.

        Seconds and passes are those since the run began.
        """
        trace = Trace()
        trace._block = (rmse, seconds, passes)
        return trace

    @property
    def rows(self) -> list[Row]:
        """The rows, one for each iteration, in the unit of the trace."""
        return [self._in_unit(row) for row in self._known()] if self._has_unit else self._known()

    @property
    def _has_unit(self) -> bool:
        return not (isinstance(self.unit, float) and self.unit == 1.0)

    def _in_unit(self, row: Row) -> Row:
        return row._replace(rmse=self.unit * row.rmse) if self._has_unit else row

    def _known(self) -> list[Row]:
        """The rows in the unit that they were made in."""
        if self._block is not None:
            (errors, seconds, passes), self._block = self._block, None
            first = self._last_known()[0] + 1
            columns = errors.unbind(), seconds.tolist(), passes.tolist()
            for k, (error, now, read) in enumerate(zip(*columns, strict=True)):
                self._rows.append(Row(first + k, now, error, read))
        return self._rows

    @property
    def last(self) -> Row:
        """The latest row."""
        if self._block is None:
            return self._in_unit(self._rows[-1])
        errors, seconds, passes = self._block
        t = self._last_known()[0] + len(errors)
        return self._in_unit(Row(t, float(seconds[-1]), errors[-1], int(passes[-1])))

    def _last_known(self) -> tuple[int, float, int]:
        if not self._rows:
            return -1, 0.0, 0
        row = self._rows[-1]
        return row.iteration, row.seconds, row.passes

    @property
    def iteration(self) -> np.ndarray:
        """Iterations, 0 … T."""
        return np.array([row.iteration for row in self._known()])

    @property
    def seconds(self) -> np.ndarray:
        """Seconds of the solver up to each iteration, including the start."""
        known = [row.seconds for row in self._rows]
        if self._block is None:
            return np.array(known)
        return np.concatenate([known, self._block[1]])

    @property
    def passes(self) -> np.ndarray:
        """Readings of V up to each iteration, with those for the start: passes over its entries."""
        return np.array([row.passes for row in self._known()])

    @property
    def rmse(self) -> np.ndarray:
        """Root mean square error (eq. 23), (T + 1,) or (T + 1, *b) for a stack."""
        parts = [torch.stack([row.rmse for row in self._rows])] if self._rows else []
        if self._block is not None:
            parts.append(self._block[0])
        return (self.unit * torch.cat(parts)).cpu().numpy()

    def since(self, first: int) -> np.ndarray:
        """Errors from row `first` on, in the unit that they were made in: (k, *b), float64."""
        rows = self._rows[first:]
        parts = [torch.stack([row.rmse for row in rows])] if rows else []
        if self._block is not None:
            parts.append(self._block[0][max(first - len(self._rows), 0) :])
        return torch.cat(parts).double().cpu().numpy() if parts else np.empty(0)

    @property
    def loss(self) -> np.ndarray:
        """The objective, (T + 1,) or (T + 1, *b): ½‖W Hᵀ − V‖², or what was minimised instead."""
        return np.asarray(objective(self.rmse, self.entries))

    @property
    def measured(self) -> np.ndarray:
        """The error that `measure` names: `rmse`, or `loss` where that means more."""
        return self.rmse if self.measure == "RMSE" else self.loss

    def columns(self) -> dict[str, np.ndarray]:
        """The table as arrays: iteration, seconds, passes, rmse and loss."""
        names = ("iteration", "seconds", "passes", "rmse", "loss")
        return {name: getattr(self, name) for name in names}

    def table(self) -> Any:
        """A pandas DataFrame with a row for each iteration; of one matrix, not of a stack."""
        if self.rmse.ndim > 1:
            raise ValueError("the trace is of a stack of matrices; columns() has its numbers")
        return frame_of(self.columns())

    def extend(self, rmse: Float[Tensor, "k *b"], seconds: float, passes: int = 0) -> None:
        """Add a row for each error, at least one; seconds and passes are divided evenly."""
        rows = self._known()  # so that there is only one block
        if len(rmse) == 1:
            t, before, read = self._last_known()
            rows.append(Row(t + 1, before + seconds, rmse[0], read + passes))
        else:
            (_, before, read), k = self._last_known(), np.arange(1, len(rmse) + 1)
            self._block = (rmse, before + seconds / len(k) * k, read + passes * k // len(k))

    def scaled(self, c: Float[Tensor, "*b"]) -> Trace:
        """The trace of the same run on c·V."""
        scaled = Trace(self._rows, c * self.unit)
        scaled._block, scaled.entries, scaled.measure = self._block, self.entries, self.measure
        return scaled

    def __len__(self) -> int:
        return len(self._rows) + (0 if self._block is None else len(self._block[1]))

    def plot(self, ax: Any = None, *, x: str = "iteration", label: str | None = None) -> Any:
        """Draw error against "iteration", "seconds" or "passes" on axes, which are returned.

        The error is the RMSE, or the loss where another than the squared error was minimised.
        """
        if x not in ("iteration", "seconds", "passes"):
            raise ValueError(f"x is {x!r}; choose 'iteration', 'seconds' or 'passes'")
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError(
                    "plotting needs matplotlib: pip install 'factormer[plot]'"
                ) from error
            ax = plt.gca()
        ax.semilogy(getattr(self, x), self.measured, label=label)
        ax.set_xlabel(x)
        ax.set_ylabel(self.measure)
        return ax
