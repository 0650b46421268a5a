"""Choice: the rank that was chosen, how sure it is, and everything that speaks for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from factormer.data.frame import frame_of
from factormer.select.ranks.criteria import Criterion
from factormer.select.ranks.reason import candidates


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """The number of components that a network chose, and the classical rules beside it.

    `rank` is always a number; `clear` says whether to trust it, which is where its probability is
    high enough that such choices were exact in 95 % of the problems held out. `probabilities` has
    one for each rank that was asked for, `criteria` what every classical rule says.
    """

    rank: int
    clear: bool
    probabilities: dict[int, float]
    reason: str
    criteria: dict[str, Criterion]
    curves: dict[str, np.ndarray] = field(repr=False)  # error, svd_error, … by rank

    @property
    def candidates(self) -> list[int]:
        """The rank, and the others to compare it with where the choice is not clear."""
        return candidates(self.rank, self.clear, self.probabilities)

    def columns(self) -> dict[str, np.ndarray]:
        """The table as arrays: rank, probability, curves, and the values of every rule."""
        found = {
            "rank": np.array(list(self.probabilities)),
            "probability": np.array(list(self.probabilities.values())),
        }
        values = {_column(name): c.values for name, c in self.criteria.items()}
        return found | self.curves | {k: v for k, v in values.items() if k not in self.curves}

    @property
    def table(self) -> Any:
        """A pandas DataFrame with a row for each rank."""
        return frame_of(self.columns(), "table")

    def plot(self) -> Any:
        """Draw probabilities, rules, errors, singular values and stability; return the figure."""
        from factormer.select.ranks.picture import drawn

        return drawn(self)

    def __str__(self) -> str:
        return self.reason

    def __repr__(self) -> str:
        sure = "clear" if self.clear else "not clear"
        return f"<Choice: rank {self.rank}, {self.probabilities[self.rank]:.0%}, {sure}>"


def _column(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")
