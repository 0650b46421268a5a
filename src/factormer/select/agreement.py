"""Agreement of many runs: a consensus, how stable its components are, and how certain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from factormer.data.factors import Factors
from factormer.data.frame import Frames, frame_of, frames_of
from factormer.data.keywords import is_finite
from factormer.run.result import Status
from factormer.run.trace import Trace, objective
from factormer.select.pictures import axes_of
from factormer.sentence import Sentence


class Matched(NamedTuple):
    """Factors of all runs, to the order and scale of the consensus."""

    W: Float[np.ndarray, "k m r"]
    H: Float[np.ndarray, "k n r"]


class Bands(NamedTuple):
    """Limits between which the given share of the runs lies, entry by entry."""

    W_low: Float[np.ndarray, "m r"]
    W_high: Float[np.ndarray, "m r"]
    H_low: Float[np.ndarray, "n r"]
    H_high: Float[np.ndarray, "n r"]


@dataclass(frozen=True, eq=False, repr=False)
class Consensus:
    """The agreement of many runs: factors, and for each component whether to trust it.

    Attributes
    ----------
    stability : array, (r,)
        Mean silhouette of the cluster of each component: 1 where all runs find the same.
    cosine : array, (r,)
        Mean cosine of the runs' components to the centre of their cluster.
    shares : array, (r,)
        The share of each component in the sum of W Hᵀ.
    matrix : array, (s, s)
        The share of runs in which two samples (rows of V) have the same largest component.
    samples : array, (s,)
        The rows of V in the matrix: all, or 2000 at random where there are more.
    order : array, (s,)
        The order of the matrix in which samples that go together are neighbours.
    cophenetic : float
        Cophenetic correlation: how well a tree represents the matrix; 1 where runs agree.
    kept : array, (n_runs,)
        Which runs count; the others are unlike all others, or did not end as they should.
    medoid : int
        The run most like all others.
    error, errors : float, array (n_runs,)
        √(2·objective / entries), the RMSE for the squared error: of W, H, and of each run on V.
    components : str
        What W and H are: "refit", or "medoid".
    status : Status or None
        Why runs are missing, if some are.
    ended, trace : Status, Trace
        Why the medoid ended, and its history.
    unmet : int
        How many of the runs that are kept ended before the tolerance was met.
    runs : Matched or None
        With `resample`: the factors of the runs that are kept.
    """

    factors: Factors
    stability: Float[np.ndarray, " r"]
    cosine: Float[np.ndarray, " r"]
    shares: Float[np.ndarray, " r"]
    matrix: Float[np.ndarray, "s s"]
    samples: Int[np.ndarray, " s"]
    order: Int[np.ndarray, " s"]
    cophenetic: float
    kept: Bool[np.ndarray, " k"]
    medoid: int
    error: float
    errors: Float[np.ndarray, " k"]
    components: str
    status: Status | None
    ended: Status
    trace: Trace
    runs: Matched | None
    unmet: int
    as_given: Callable[[Tensor], Any] = field(repr=False)

    @property
    def W(self) -> Any:
        """Left factor (m, r), an array of the same kind as V."""
        return self.as_given(self.factors.W)

    @property
    def H(self) -> Any:
        """Right factor (n, r), an array of the same kind as V."""
        return self.as_given(self.factors.H)

    @property
    def loss(self) -> float:
        """The objective at W and H: ½‖W Hᵀ − V‖², or what was minimised instead."""
        return float(objective(self.error, self.trace.entries))

    def frames(self) -> Frames:
        """W and H as pandas DataFrames, with the labels of V where it was one."""
        return frames_of(*self.factors, self.as_given)

    def bands(self, level: float = 0.9) -> Bands:
        """Limits of uncertainty for W and H: the middle `level` of the runs on resampled data.

        The components of each run are scaled so that h_c has the sum of the consensus. With
        resample="bootstrap", W has the uncertainty of H alone.
        """
        if not is_finite(level) or not 0 < level < 1:
            raise ValueError(f"level is {level!r}; it must be a share of the runs between 0 and 1")
        if self.runs is None:
            raise ValueError(
                Sentence(
                    "runs on the same data show no uncertainty of it; ask for consensus(…, "
                    "{resample=poisson}) for counts, or {resample=bootstrap} for rows drawn anew"
                )
            )
        tails = [(1 - level) / 2, (1 + level) / 2]
        return Bands(*np.quantile(self.runs.W, tails, axis=0), *np.quantile(self.runs.H, tails, 0))

    def columns(self) -> dict[str, np.ndarray]:
        """The table as arrays: component, share, stability and cosine."""
        return {
            "component": np.arange(len(self.stability)),
            "share": self.shares,
            "stability": self.stability,
            "cosine": self.cosine,
        }

    def table(self) -> Any:
        """A pandas DataFrame with a row for each component."""
        return frame_of(self.columns())

    def plot(self, axes: Any = None) -> Any:
        """Draw the consensus matrix and the stability on two matplotlib axes, which are returned.

        Samples are in an order in which those that go together are neighbours.
        """
        axes = axes_of(axes, 2)
        ordered = self.matrix[np.ix_(self.order, self.order)]
        image = axes[0].imshow(ordered, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        axes[0].figure.colorbar(image, ax=axes[0], label="share of runs together")
        axes[0].set_title(f"cophenetic correlation {self.cophenetic:.3f}")
        axes[0].set_xlabel("samples, like beside like")
        axes[0].set_xticks([])
        axes[0].set_yticks([])
        places = np.arange(len(self.stability))
        axes[1].bar(places, self.stability, color="C0")
        axes[1].set_ylim(min(0.0, float(self.stability.min())), 1)
        axes[1].set_xticks(places if len(places) <= 20 else places[:: len(places) // 10])
        axes[1].set_xlabel("component, by share")
        axes[1].set_ylabel("stability")
        axes[1].set_title(f"{int(self.kept.sum())} of {len(self.kept)} runs kept")
        return axes

    def __repr__(self) -> str:
        (m, r), n = self.factors.W.shape, len(self.factors.H)
        low, high = self.stability.min(), self.stability.max()
        error, best, measure = self.error, np.nanmin(self.errors), self.trace.measure
        if measure != "RMSE":
            measure, error, best = f"{measure} of an entry", error**2 / 2, best**2 / 2
        return (
            f"<Consensus: {m}×{n} at rank {r}, {int(self.kept.sum())} of {len(self.kept)} runs "
            f"kept, stability {low:.3f} to {high:.3f}, cophenetic {self.cophenetic:.3f}, {measure} "
            f"{error:.4g} (best run {best:.4g})>"
        )
