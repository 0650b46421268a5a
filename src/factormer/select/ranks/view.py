"""V as the choice of a rank sees it: whole where it is small, else a sketch and a random block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import Dense, LowRank, Sparse, sketch

LARGE = 500_000  # entries beyond which V is seen through its sketch
_BLOCK = 400  # rows, and columns, of the block on which noise is measured then
_BALANCING = 12  # iterations of Sinkhorn and Knopp


class View(NamedTuple):
    """A matrix, the block of it that is looked at entry by entry, where that is, and its unit."""

    whole: Dense | Sparse
    block: Float[Tensor, "i j"]
    rows: Int[Tensor, "i"]
    columns: Int[Tensor, "j"]
    unit: float  # the mean that V had

    @property
    def is_small(self) -> bool:
        """Whether the block is all of it."""
        return tuple(self.block.shape) == tuple(self.whole.shape)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole."""
        m, n = self.whole.shape
        return m, n

    @property
    def total(self) -> float:
        """The sum of all squares."""
        return float(self.whole.sq_norm())

    @property
    def growth(self) -> float:
        """By how much the norm of noise grows from the block to the whole."""
        whole, block = (np.sqrt(shape).sum() for shape in (self.shape, self.block.shape))
        return float(whole / block)

    def compressed(self, width: int, rng: torch.Generator) -> LowRank:
        """A sketch that is wide enough for fits at ranks up to a quarter of its width."""
        return sketch(self.whole, width, rng)


def view_of(V: Dense | Sparse, rng: torch.Generator) -> View:
    """V without empty rows and columns, of mean 1."""
    if isinstance(V, Sparse) and V.shape[0] * V.shape[1] <= LARGE:
        ((_, entries),) = V.blocks(None)
        V = Dense(entries)
    if isinstance(V, Dense):
        X = V.entries.double()
        largest = float(X.max())
        X = X / largest  # so that sums stay finite
        X = X[X.sum(1) > 0][:, X.sum(0) > 0]
        mean = float(X.mean())
        return _seen(Dense((X / mean).contiguous()), mean * largest, rng)
    A: Any = _scipy(V)
    largest = float(A.max())
    A = A / largest
    A = A[A.sum(1) > 0][:, A.sum(0) > 0]
    mean = float(A.mean())
    return _seen(Sparse.of(A / mean), mean * largest, rng)


def balanced(view: View, power: int) -> View:
    """D₁ X D₂ whose noise has the same variance on average in every row and column.

    For noise with a variance in proportion to x^power of an entry x: counts have the power 1
    (Landa, Zhang and Kluger, 2022), and their variance is 1 / unit then; noise in proportion has
    the power 2. Diagonal D₁, D₂ > 0 leave the nonnegative rank as it is.
    """
    if power == 0:
        return view
    X = view.whole
    if isinstance(X, Dense):
        u, v = scales(X.entries**power)
        whole = Dense(X.entries * u.sqrt()[:, None] * v.sqrt())
    else:
        A = _scipy(X)
        u, v = scales(A.power(power))
        left, right = (scipy.sparse.diags_array(s.sqrt().numpy()) for s in (u, v))
        whole = Sparse.of((left @ A @ right).tocsr())
    block = view.block * u[view.rows].sqrt()[:, None] * v[view.columns].sqrt()
    return view._replace(whole=whole, block=whole.entries if view.is_small else block)  # pyright: ignore


def _seen(whole: Dense | Sparse, unit: float, rng: torch.Generator) -> View:
    m, n = whole.shape
    if m * n <= LARGE:
        assert isinstance(whole, Dense)
        return View(whole, whole.entries, torch.arange(m), torch.arange(n), unit)
    rows, columns = (torch.randperm(s, generator=rng)[:_BLOCK].sort().values for s in (m, n))
    if isinstance(whole, Dense):
        return View(whole, whole.entries[rows][:, columns], rows, columns, unit)
    block = _scipy(whole)[rows.numpy()][:, columns.numpy()].toarray()
    return View(whole, torch.from_numpy(block), rows, columns, unit)


def scales(
    variance: Float[Tensor, "m n"] | scipy.sparse.csr_array,
) -> tuple[Float[Tensor, "m"], Float[Tensor, "n"]]:
    """u, v > 0 for which u·variance·v has rows and columns of mean 1."""
    shape: Any = variance.shape
    m, n = shape
    u, v = (torch.ones(size, dtype=torch.float64) for size in (m, n))

    def times(A: Tensor | scipy.sparse.sparray, x: Tensor) -> Tensor:
        if isinstance(A, Tensor):
            return A @ x
        return torch.from_numpy(A @ x.numpy())

    for _ in range(_BALANCING):
        u = 1 / (times(variance, v) / n + 1e-6 * v.mean())
        v = 1 / (times(variance.T, u) / m + 1e-6 * u.mean())
    return u, v


def _scipy(V: Sparse) -> scipy.sparse.csr_array:
    rows = V.by_rows
    arrays = (a.cpu().numpy() for a in (rows.values, rows.columns, rows.starts))
    values, columns, starts = arrays
    scale = float(V.scale)
    m, n = V.shape
    return scipy.sparse.csr_array(
        (scale * values.astype(np.float64), columns, starts), shape=(m, n)
    )
