"""What a run returns: factors, why it ended, and its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
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

    def __repr__(self) -> str:
        *batch, m, r = self.factors.W.shape
        n = self.factors.H.shape[-2]
        error = f"RMSE {self.rmse:.4g}" if not batch else f"RMSE up to {np.max(self.rmse):.4g}"
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

    @property
    def rmse(self) -> float | np.ndarray:
        """Root mean square error of the factors returned."""
        return self.error.item() if self.error.dim() == 0 else self.error.cpu().numpy()

    @property
    def loss(self) -> float | np.ndarray:
        """The objective at the factors returned: ½‖W Hᵀ − V‖², or what was minimised instead."""
        return objective(self.rmse, self.trace.entries)

    @property
    def n_iter(self) -> int:
        """Outer iterations made."""
        return len(self.trace) - 1
