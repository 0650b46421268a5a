"""Where W Hᵀ differs from V: in total, by rows, by columns, and by blocks of both.

A dense V is compared block by block. Of a sparse one, stored entries are compared one by one, and
the rest of W Hᵀ is summed through the small matrices HᵀH and WᵀW. All squares are those of V / c,
with c the largest entry, so that they are finite for every unit of V.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Float

from factormer.data.intake import is_sparse

SIDE = 200  # blocks per side at most
_CHUNK = 1 << 22  # entries worked on at once


class Blocks(NamedTuple):
    """Sums over blocks of rows × columns, and where the blocks begin and end."""

    rows: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, m: int, n: int) -> Blocks:
        edges = [np.linspace(0, k, min(k, SIDE) + 1).round().astype(np.int64) for k in (m, n)]
        return cls(*edges)

    def row_of(self) -> np.ndarray:
        """The block of each row."""
        return np.repeat(np.arange(len(self.rows) - 1), np.diff(self.rows))

    def column_of(self) -> np.ndarray:
        """The block of each column."""
        return np.repeat(np.arange(len(self.columns) - 1), np.diff(self.columns))


class Residuals(NamedTuple):
    """Root mean squares of V − W Hᵀ over known entries; means of V and of W Hᵀ by blocks.

    `rms` is that of V, and `relative` the share of it that the error is. NaN where nothing is
    known.
    """

    rmse: float
    rms: float
    relative: float
    known: int
    rows: Float[np.ndarray, " m"]
    columns: Float[np.ndarray, " n"]
    blocks: Float[np.ndarray, "p q"]
    V_blocks: Float[np.ndarray, "p q"]
    fit_blocks: Float[np.ndarray, "p q"]


def residuals(
    V: Any, W: Float[np.ndarray, "m r"], H: Float[np.ndarray, "n r"], known: Any = None
) -> Residuals:
    """The residuals of a factorization; `known` is a mask, dense, or sparse for a sparse V."""
    c = peak(V)
    W, H = _balanced(W.astype(np.float64), H.astype(np.float64), c)
    sums = _sparse(V, W, H, known, c) if is_sparse(V) else _dense(V, W, H, known, c)
    error, norm, entries, values, fit = sums
    sq_error, count = max(error.blocks.sum(), 0.0), entries.blocks.sum()
    return Residuals(
        rmse=c * float(np.sqrt(sq_error / count)),
        rms=c * float(np.sqrt(norm / count)),
        relative=float(np.sqrt(sq_error / norm)) if norm else 0.0,
        known=int(count),
        rows=c * _rms(error.rows, entries.rows),
        columns=c * _rms(error.columns, entries.columns),
        blocks=c * _rms(error.blocks, entries.blocks),
        V_blocks=c * _mean(values.blocks, entries.blocks),
        fit_blocks=c * _mean(fit.blocks, entries.blocks),
    )


def peak(V: Any) -> float:
    """The size of the largest entry that is finite; 1 where all are zero."""
    values = V.data if is_sparse(V) else np.asarray(V)
    if not values.size:
        return 1.0
    size = max(float(np.fmax.reduce(values, axis=None)), -float(np.fmin.reduce(values, axis=None)))
    if not np.isfinite(size):
        size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    return size or 1.0


def _balanced(W: np.ndarray, H: np.ndarray, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Factors of W Hᵀ / c, with H at most 1 in each component."""
    a, b = (np.abs(X).max(axis=0) for X in (W, H))
    a, b = np.where(a > 0, a, 1.0), np.where(b > 0, b, 1.0)
    return W / a * ((a / np.sqrt(c)) * (b / np.sqrt(c))), H / b


class _Sums:
    """A quantity of entries, summed by rows, by columns and by blocks."""

    def __init__(self, blocks: Blocks) -> None:
        self.at = blocks
        p, q = len(blocks.rows) - 1, len(blocks.columns) - 1
        self.rows, self.columns = np.zeros(blocks.rows[-1]), np.zeros(blocks.columns[-1])
        self.blocks = np.zeros((p, q))

    def add_dense(self, first: int, values: np.ndarray, row_block: int) -> None:
        """Rows from `first` on, all of one block."""
        self.rows[first : first + len(values)] += values.sum(axis=1)
        columns = values.sum(axis=0)
        self.columns += columns
        self.blocks[row_block] += np.add.reduceat(columns, self.at.columns[:-1])

    def add_entries(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        self.rows += np.bincount(rows, values, len(self.rows))
        self.columns += np.bincount(columns, values, len(self.columns))
        p, q = self.blocks.shape
        at = self.at.row_of()[rows] * q + self.at.column_of()[columns]
        self.blocks += np.bincount(at, values, p * q).reshape(p, q)

    def add_product(self, A: np.ndarray, B: np.ndarray) -> None:
        """All entries of A Bᵀ."""
        self.rows += A @ B.sum(axis=0)
        self.columns += B @ A.sum(axis=0)
        p, q = (np.add.reduceat(X, at[:-1], axis=0) for X, at in zip((A, B), self.at, strict=True))
        self.blocks += p @ q.T


_Parts = tuple[_Sums, float, _Sums, _Sums, _Sums]


def _dense(V: np.ndarray, W: np.ndarray, H: np.ndarray, known: Any, c: float) -> _Parts:
    blocks = Blocks.of(*V.shape)
    error, entries, values, fit = (_Sums(blocks) for _ in range(4))
    mask = known.toarray() if is_sparse(known) else known
    norm, chunk = 0.0, max(1, _CHUNK // V.shape[1])
    for b, (start, end) in enumerate(zip(blocks.rows[:-1], blocks.rows[1:], strict=True)):
        for first in range(start, end, chunk):
            rows = slice(first, min(first + chunk, end))
            v, y = V[rows].astype(np.float64) / c, W[rows] @ H.T
            ok = np.isfinite(v)
            if mask is not None:
                ok &= np.asarray(mask[rows]) > 0
            v, y = np.where(ok, v, 0.0), np.where(ok, y, 0.0)
            norm += float((v**2).sum())
            for sums, what in ((error, (v - y) ** 2), (entries, ok * 1.0), (values, v), (fit, y)):
                sums.add_dense(first, what, b)
    return error, norm, entries, values, fit


def _sparse(V: Any, W: np.ndarray, H: np.ndarray, known: Any, c: float) -> _Parts:
    blocks = Blocks.of(*V.shape)
    error, entries, values, fit = (_Sums(blocks) for _ in range(4))
    coo = scipy.sparse.coo_array(V)
    rows, columns, v = coo.row, coo.col, coo.data.astype(np.float64)
    if known is not None:  # its entries, and V there: zero where V stores nothing
        at = scipy.sparse.csr_array(known, copy=True)
        at.eliminate_zeros()
        rows, columns = at.nonzero()
        v = np.asarray(scipy.sparse.csr_array(V)[rows, columns]).ravel().astype(np.float64)
    v = v / c
    y = np.concatenate(
        [
            np.einsum("ec,ec->e", W[rows[part]], H[columns[part]])
            for part in _parts(len(rows), max(1, _CHUNK // W.shape[1]))
        ]
        or [np.zeros(0)]
    )
    error.add_entries(rows, columns, (v - y) ** 2)
    values.add_entries(rows, columns, v)
    if known is not None:
        entries.add_entries(rows, columns, np.ones_like(v))
        fit.add_entries(rows, columns, y)
    else:  # what is not stored is zero there, and its error the square of the fit
        _add_squares(error, W, H)
        error.add_entries(rows, columns, -(y**2))
        m, n = V.shape
        entries.add_product(np.ones((m, 1)), np.ones((n, 1)))
        fit.add_product(W, H)
    return error, float((v**2).sum()), entries, values, fit


def _add_squares(sums: _Sums, W: np.ndarray, H: np.ndarray) -> None:
    """The squares of all entries of W Hᵀ, which are Σ_cd W_ic W_id H_jc H_jd."""
    r = W.shape[1]
    for c in range(r):
        once = np.ones(r - c)
        once[1:] = 2.0
        sums.add_product(W[:, c:] * W[:, c : c + 1] * once, H[:, c:] * H[:, c : c + 1])


def _parts(size: int, step: int) -> list[slice]:
    return [slice(a, min(a + step, size)) for a in range(0, size, step)]


def _rms(squares: np.ndarray, entries: np.ndarray) -> np.ndarray:
    return np.sqrt(_mean(squares.clip(min=0), entries))


def _mean(sums: np.ndarray, entries: np.ndarray) -> np.ndarray:
    return np.divide(sums, entries, out=np.full(sums.shape, np.nan), where=entries > 0)
