"""Data of which only some entries count, or some more than others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.data.base import Matrix, Normal, turned
from factormer.data.dense import Dense
from factormer.data.factors import Factors
from factormer.data.sparse import Rows, Sparse


@dataclass(frozen=True, eq=False)
class Observed:
    """A matrix and a weight for each of its entries, 0 for one that is not known.

    Where V is sparse, the weights are those of its stored entries, and the others are not known.
    Products are those of the matrix with the mean in place of unknown entries (zero, where V is
    sparse): they serve to find a start. `Problem` computes the loss.
    """

    V: Dense | Sparse
    weights: Float[Tensor, "..."]

    rows = None
    cols = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.V.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.V.dtype

    @property
    def device(self) -> torch.device:
        return self.V.device

    @property
    def known(self) -> Bool[Tensor, "..."]:
        """Which entries count."""
        return self.weights > 0

    def count(self) -> Float[Tensor, "*b"]:
        """How many entries count."""
        known = self.known.to(torch.float64)
        return (known.sum(dim=(-2, -1)) if isinstance(self.V, Dense) else known.sum()).clamp(min=1)

    def level(self) -> Float[Tensor, "*b"]:
        """The mean weight of the entries that count."""
        axes = (-2, -1) if isinstance(self.V, Dense) else -1
        return self.weights.sum(dim=axes, dtype=torch.float64) / self.count()

    def weighted(self, c: Float[Tensor, "*b"]) -> Observed:
        """Return the data with weights c·ω."""
        c = c[..., None, None] if isinstance(self.V, Dense) else c
        return replace(self, weights=(c * self.weights).to(self.dtype))

    def total(self) -> Float[Tensor, "*b"]:
        """The sum of the known entries."""
        if isinstance(self.V, Dense):
            known = torch.where(self.known, self.V.entries, 0)
            return known.sum(dim=(-2, -1), dtype=torch.float64)
        return self.V.scale * self.V.by_rows.values[self.known].double().sum()

    @cached_property
    def filled(self) -> Matrix:
        """The matrix with its mean, or zero where it is sparse, in place of unknown entries."""
        if isinstance(self.V, Sparse):
            values = torch.where(self.known, self.V.by_rows.values, 0)
            return Sparse(replace(self.V.by_rows, values=values), self.V.scale)
        mean = (self.total() / self.count()).to(self.dtype)[..., None, None]
        return Dense(torch.where(self.known, self.V.entries, mean))

    @property
    def T(self) -> Observed:
        return turned(self, self._transposed)

    def _transposed(self) -> Observed:
        if isinstance(self.V, Dense):
            return Observed(self.V.T, self.weights.mT)
        at = replace(self.V.by_rows, values=self.weights)
        return Observed(self.V.T, at.transposed().values)

    @cached_property
    def compressed(self) -> tuple[np.ndarray, ...]:
        """A sparse V as in `Sparse.compressed`, and then its weights by rows and by columns."""
        assert isinstance(self.V, Sparse)
        at = Sparse(replace(self.V.by_rows, values=self.weights)).compressed
        return (*self.V.compressed, at[2], at[5])

    def work(self) -> float | Float[Tensor, "*b"]:
        return self.V.work()

    def sq_norm(self) -> Float[Tensor, "*b"]:
        return self.filled.sq_norm()

    def sq_error(self, x: Factors) -> Float[Tensor, "*b"]:
        return self.filled.sq_error(x)

    def __matmul__(self, X: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b m k"]:
        return self.filled @ X

    def normal(self, W: Float[Tensor, "*b m r"]) -> Normal:
        return self.filled.normal(W)

    def scaled(self, c: Float[Tensor, "*b"]) -> Observed:
        return replace(self, V=self.V.scaled(c))

    def to(self, dtype: torch.dtype) -> Observed:
        return Observed(self.V.to(dtype), self.weights.to(dtype))

    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "*b k n"]]]:
        return self.filled.blocks(size)


def counted(V: Matrix) -> float:
    """How many entries of one matrix count."""
    return float(V.count()) if isinstance(V, Observed) else float(math.prod(V.shape))


def stored(V: Float[Tensor, "m n"], weights: Float[Tensor, "m n"]) -> Observed:
    """Store the data without its unknown entries, which pays if there are many."""
    known = scipy.sparse.csr_array((weights > 0).cpu().numpy())
    starts, columns = (torch.from_numpy(a).to(V.device) for a in (known.indptr, known.indices))
    rows = torch.repeat_interleave(torch.arange(len(V), device=V.device), starts.diff())
    at = (rows, columns.long())
    return Observed(Sparse(Rows(starts, columns, V[at], n=V.shape[1])), weights[at])
