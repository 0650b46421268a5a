"""The numbers that a run keeps of the fit of one rank: its result.json."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """How the fit of one rank ended; errors are those of W Hᵀ over the known entries of V."""

    rank: int
    status: str
    message: str
    iterations: int
    seconds: float
    objective: float
    rmse: float
    relative_error: float
    explained: float
    svd_rmse: float | None
    shares: list[float]
    stability: list[float] | None = None  # of each component, of several runs
    runs_kept: int | None = None
    held_out: list[float] | None = None  # the loss of hidden entries, fold by fold; or NaN
    held_out_rounding: float | None = None  # differences of these that are rounding
    divergence: float | None = None  # the mean loss of an entry, where it is not the squared error
    explained_divergence: float | None = None  # how much less it is than that of a constant
    mean_weight: float | None = None  # of the known entries, where weights were given

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to do for this rank."""
        return self.status != "INTERRUPTED"
