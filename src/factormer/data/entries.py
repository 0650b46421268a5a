"""The entries of V row by row, as compiled loops take them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from factormer.data.base import Matrix
from factormer.data.dense import Dense
from factormer.data.observed import Observed
from factormer.data.sparse import Sparse

_PARTS = 16  # blocks of rows of about equal work, shared out over threads


@dataclass(frozen=True, eq=False)
class Entries:
    """Row i has values[starts[i] : starts[i + 1]], in `columns`, or in all where that is empty.

    `weights` goes with the values, and is empty where all are 1. `complete` says whether what is
    not stored is zero; otherwise it is not known.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    complete: bool

    @staticmethod
    def of(V: Matrix) -> Entries:
        """Return the entries of one matrix on a CPU; arrays are shared where they can be."""
        data = V.V if isinstance(V, Observed) else V
        weights: Any = V.weights if isinstance(V, Observed) else torch.empty(0, dtype=V.dtype)
        if isinstance(data, Sparse):
            at = data.by_rows
            values = (data.scale * at.values).numpy()
            starts, columns = at.starts.numpy(), at.columns.numpy()
        elif isinstance(data, Dense):
            m, n = data.shape
            values = np.ascontiguousarray(data.entries.numpy()).reshape(-1)
            starts, columns = np.arange(m + 1) * n, np.empty(0, np.int32)
        else:
            raise TypeError(f"a {type(data).__name__} matrix stores no entries")
        return Entries(
            starts.astype(np.int64, copy=False),
            columns.astype(np.int32, copy=False),
            values,
            np.ascontiguousarray(weights.numpy()).reshape(-1),
            complete=not isinstance(V, Observed),
        )

    @cached_property
    def widest(self) -> int:
        """The most entries in a row, at least 1."""
        return max(int(np.diff(self.starts).max()), 1)

    @cached_property
    def cuts(self) -> list[int]:
        """Rows that part the whole into blocks of about equal work."""
        aims = np.linspace(0, self.starts[-1], _PARTS + 1)[1:-1]
        inside = np.searchsorted(self.starts, aims)
        return np.unique([0, *inside, len(self.starts) - 1]).tolist()
