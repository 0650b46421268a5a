"""The result of a run: factors, why it ended, and its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from html import escape
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.proposals import Proposals
from factormer.data.factors import Factors
from factormer.data.frame import Frames, Labelled, frames_of
from factormer.run.order import shares
from factormer.run.picture import drawn
from factormer.run.trace import Trace, objective


class Status(Enum):
    """Why the iterations ended; the value is a sentence for people."""

    CONVERGED = "the tolerance was met"
    MAX_ITER = "the iteration limit was reached before the tolerance was met"
    TIME_LIMIT = "the time limit was reached before the tolerance was met"
    INTERRUPTED = "the run was interrupted; the best point so far was kept"
    NONFINITE = "the solver reached numbers that are not finite; the best point before was kept"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A factorization V ≈ W Hᵀ: the best point seen, why the run ended, and its history."""

    factors: Factors
    status: Status
    trace: Trace
    error: Float[Tensor, "*b"]
    as_given: Callable[[Tensor], Any] = field(default=torch.Tensor.detach, repr=False)
    plan: Any = field(default=None, repr=False)  # in words: what was chosen, and why
    misfit: Float[Tensor, "*b"] | None = field(default=None, repr=False)  # where penalties are
    proposals: Proposals | None = field(default=None, repr=False)  # of named networks, but any-rank

    def __repr__(self) -> str:
        *batch, m, r = self.factors.W.shape
        n = self.factors.H.shape[-2]
        measure = self.trace.measure
        value = self.rmse if measure == "RMSE" else self.loss
        error = f"{measure} {'up to ' if batch else ''}{np.max(value):.4g}"
        if self.misfit is not None:
            error += f", rmse {np.max(self.rmse):.4g}"
        many = f"{'×'.join(map(str, batch))} of " if batch else ""
        seconds = self.trace.seconds[-1] if len(self.trace) else 0.0
        return (
            f"<Result: {many}{m}×{n} at rank {r}, {error}, {self.n_iter} iterations in "
            f"{seconds:.2g} s, {self.status.name}>"
        )

    @property
    def W(self) -> Any:
        """Left factor (m, r), an array of the same kind as V."""
        return self.as_given(self.factors.W)

    @property
    def H(self) -> Any:
        """Right factor (n, r), an array of the same kind as V."""
        return self.as_given(self.factors.H)

    def frames(self) -> Frames:
        """W and H as pandas DataFrames, with the labels of V where it was one.

        Rows of W are rows of V, rows of H its columns; `trace.table()` has the history.
        """
        return frames_of(*self.factors, self.as_given)

    def _repr_html_(self) -> str:
        """A picture for notebooks: the error by iteration, and components by their share."""
        if self.factors.W.dim() > 2 or not len(self.trace):
            return f"<div>{escape(repr(self))}</div>"
        trace, labels = self.trace, self.as_given
        return drawn(
            repr(self)[1:-1],
            trace.iteration,
            trace.measured,
            trace.measure,
            self.factors.H.detach().cpu().numpy(),
            shares(self.factors),
            labels.columns if isinstance(labels, Labelled) else None,
        )

    @property
    def rmse(self) -> float | np.ndarray:
        """Root mean square error of the factors returned, whatever the penalties.

        Under another loss √(2·misfit / entries). What was minimised is `loss`.
        """
        return _number(self.error if self.misfit is None else self.misfit)

    @property
    def loss(self) -> float | np.ndarray:
        """The objective at the factors returned: ½‖W Hᵀ − V‖², or what was minimised instead."""
        return objective(_number(self.error), self.trace.entries)

    @property
    def n_iter(self) -> int:
        """Outer iterations made."""
        return len(self.trace) - 1


def _number(error: Float[Tensor, "*b"]) -> float | np.ndarray:
    return error.item() if error.dim() == 0 else error.cpu().numpy()
