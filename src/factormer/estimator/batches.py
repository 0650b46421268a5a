"""Batches of rows: of a matrix in memory, or of a file, a store or a Dask array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Int
from torch import Tensor

from factormer.data import Blocks, Dense, Sparse
from factormer.data.dask import distributed_of, is_dask
from factormer.data.intake import as_matrix
from factormer.data.outofcore import blocks_of
from factormer.data.sources import source_of
from factormer.data.sparse import Rows


def outside(X: Any) -> Blocks | None:
    """The blocks of a file, a store or a Dask array; None where X is in memory."""
    if is_dask(X):
        return distributed_of(X)
    source = source_of(X)
    return None if source is None else blocks_of(source)


@dataclass(frozen=True, eq=False)
class Batches:
    """The rows of V, `size` at a time, in their order; those outside of memory also by blocks."""

    V: Dense | Sparse | Blocks
    size: int

    def __iter__(self) -> Iterator[tuple[slice, Dense | Sparse]]:
        if not isinstance(self.V, Blocks):
            for a in range(0, self.V.shape[0], self.size):
                rows = slice(a, min(a + self.size, self.V.shape[0]))
                yield rows, some_rows(self.V, rows)
            return
        for rows, block in self.V.reader.read(self.V.dtype):
            for a in range(rows.start, rows.stop, self.size):
                b = min(a + self.size, rows.stop)
                part = block[a - rows.start : b - rows.start]
                try:
                    yield slice(a, b), as_matrix(part)
                except ValueError as error:
                    raise ValueError(f"{error} (in rows {a} to {b - 1})") from error

    def sample(self, rng: np.random.Generator) -> Dense | Sparse:
        """One batch: rows drawn at random where V is in memory, and the first ones otherwise."""
        m = self.V.shape[0]
        if isinstance(self.V, Blocks) or m <= self.size:
            return next(iter(self))[1]
        return drawn(self.V, np.sort(rng.choice(m, self.size, replace=False)))


def some_rows(V: Dense | Sparse, rows: slice) -> Dense | Sparse:
    """Rows that follow each other, in the same memory."""
    if isinstance(V, Dense):
        return Dense(V.entries[rows])
    at, (a, b) = V.by_rows, (rows.start, rows.stop)
    inside = slice(int(at.starts[a]), int(at.starts[b]))
    starts = at.starts[a : b + 1] - at.starts[a]
    return Sparse(Rows(starts, at.columns[inside], at.values[inside], at.n), V.scale)


def drawn(V: Dense | Sparse, rows: Int[np.ndarray, " k"]) -> Dense | Sparse:
    """Return some rows."""
    if isinstance(V, Dense):
        return Dense(V.entries[torch.from_numpy(rows)])
    at = V.by_rows
    arrays = tuple(a.cpu().numpy() for a in (at.values, at.columns, at.starts))
    return Sparse.of(scipy.sparse.csr_array(arrays, shape=V.shape)[rows], V.device)


def joined(parts: list[Tensor]) -> Tensor:
    """The rows of all batches."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
