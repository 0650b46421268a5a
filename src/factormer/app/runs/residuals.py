"""Residuals V − W Hᵀ: in total, by rows, by columns, and by blocks of both.

By the squared error, and by the loss that was minimised where it is another one. A dense V is
compared block by block. Of a sparse one, stored entries are compared one by one, and the rest of
W Hᵀ is summed through the small matrices HᵀH and WᵀW; by losses for which that is not possible it
is compared as a dense one. All is that of V / c, with c the largest entry, so that squares are
finite for every unit of V.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float

from factormer.data.intake import is_sparse
from factormer.problem.loss import Loss
from factormer.problem.losses import FROBENIUS

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
    """Errors of W Hᵀ over known entries; means of V and of W Hᵀ by blocks.

    All means are weighted where entries count differently; `weight` is the mean of the weights.
    `rms` is that of V, and `relative` the share of it that `rmse` is. `rows`, `columns` and
    `blocks` are root mean squares of V − W Hᵀ, or mean losses where the loss is not the squared
    error. Then `divergence` is the mean loss of an entry, and `explained` how much less it is than
    that of the best constant, as a share. NaN where nothing is known.
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
    divergence: float = math.nan
    explained: float = math.nan
    weight: float = 1.0


def residuals(
    V: Any,
    W: Float[np.ndarray, "m r"],
    H: Float[np.ndarray, "n r"],
    known: Any = None,
    loss: Loss = FROBENIUS,
) -> Residuals:
    """The residuals of a factorization; `known` is how much each entry counts, 0 for not at all.

    It is a mask or weights, dense, or sparse for a sparse V; None where all count the same.
    """
    c = peak(V)
    W, H = _balanced(W.astype(np.float64), H.astype(np.float64), c)
    V, known = (scipy.sparse.csr_array(A) if is_sparse(A) else A for A in (V, known))
    by_sums = loss.is_quadratic or loss.zero_slope is not None or known is not None
    summed = (_sparse if is_sparse(V) and by_sums else _dense)(V, W, H, known, c, loss)
    error, norm, entries, values, fit, each, known_entries = summed
    sq_error, count = max(error.blocks.sum(), 0.0), entries.blocks.sum()  # of weights
    of_loss, unit = {}, 1.0
    if not loss.is_quadratic:
        with np.errstate(over="ignore", under="ignore"):
            unit = float(np.float64(c) ** loss.degree)
        misfit = max(each.blocks.sum(), 0.0)
        worst = _of_constant(V, known, c, loss, values.blocks.sum() / count)
        of_loss["divergence"] = unit * float(misfit / count)
        of_loss["explained"] = float(1 - misfit / worst) if worst > 0 else math.nan

    def shown(part: np.ndarray, of: np.ndarray) -> np.ndarray:
        return c * _rms(part, of) if loss.is_quadratic else unit * _mean(part.clip(min=0), of)

    return Residuals(
        rmse=c * float(np.sqrt(sq_error / count)),
        rms=c * float(np.sqrt(norm / count)),
        relative=float(np.sqrt(sq_error / norm)) if norm else 0.0,
        known=known_entries,
        rows=shown(each.rows, entries.rows),
        columns=shown(each.columns, entries.columns),
        blocks=shown(each.blocks, entries.blocks),
        V_blocks=c * _mean(values.blocks, entries.blocks),
        fit_blocks=c * _mean(fit.blocks, entries.blocks),
        weight=float(count / max(known_entries, 1)),
        **of_loss,
    )


def _of_constant(V: Any, known: Any, c: float, loss: Loss, constant: float) -> float:
    """The sum of the losses of V / c if every entry is fitted by a constant."""
    if not constant > 0:
        return 0.0

    def total(v: np.ndarray, weights: np.ndarray) -> float:
        return float(weights @ _losses(loss, v, np.full(v.shape, constant)))

    if is_sparse(V):
        _, _, v, weights = _entries(V, known)
        zeros = 0 if known is not None else V.shape[0] * V.shape[1] - len(v)
        return total(v / c, weights) + (zeros * total(np.zeros(1), np.ones(1)) if zeros else 0.0)
    parts = (_known(V, known, rows, c) for rows in _parts(len(V), max(1, _CHUNK // V.shape[1])))
    return sum(total(v[w > 0], w[w > 0]) for v, w in parts)


def _losses(loss: Loss, v: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The loss of each entry."""
    return loss(torch.from_numpy(v), torch.from_numpy(y)).numpy()


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


_Parts = tuple[_Sums, float, _Sums, _Sums, _Sums, _Sums, int]


def _known(V: Any, known: Any, rows: slice, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of V / c, and how much each of their entries counts."""
    some = V[rows]
    v = (some.toarray() if is_sparse(some) else np.asarray(some)).astype(np.float64) / c
    weights = np.isfinite(v) * 1.0
    if known is not None:
        some = known[rows]
        weights *= some.toarray() if is_sparse(some) else np.asarray(some)
    return v, weights


def _dense(V: Any, W: np.ndarray, H: np.ndarray, known: Any, c: float, loss: Loss) -> _Parts:
    blocks = Blocks.of(*V.shape)
    error, entries, values, fit = (_Sums(blocks) for _ in range(4))
    each = error if loss.is_quadratic else _Sums(blocks)
    norm, count, chunk = 0.0, 0, max(1, _CHUNK // V.shape[1])
    for b, (start, end) in enumerate(zip(blocks.rows[:-1], blocks.rows[1:], strict=True)):
        for first in range(start, end, chunk):
            rows = slice(first, min(first + chunk, end))
            (v, w), y = _known(V, known, rows, c), W[rows] @ H.T
            ok = w > 0
            if each is not error:
                d = np.zeros_like(v)
                d[ok] = w[ok] * _losses(loss, v[ok], y[ok])
                each.add_dense(first, d, b)
            v, y = np.where(ok, v, 0.0), np.where(ok, y, 0.0)
            norm, count = norm + float((w * v**2).sum()), count + int(ok.sum())
            for sums, what in ((error, (v - y) ** 2), (entries, 1.0), (values, v), (fit, y)):
                sums.add_dense(first, w * what, b)
    return error, norm, entries, values, fit, each, count


def _entries(V: Any, known: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns, values and weights of the entries of sparse V that are stored, or known."""
    if known is None:
        coo = scipy.sparse.coo_array(V)
        return coo.row, coo.col, coo.data.astype(np.float64), np.ones(len(coo.data))
    at = scipy.sparse.csr_array(known, copy=True)  # V there: zero where V stores nothing
    at.eliminate_zeros()
    at = scipy.sparse.coo_array(at)
    rows, columns = at.row, at.col
    v = np.asarray(scipy.sparse.csr_array(V)[rows, columns]).ravel().astype(np.float64)
    return rows, columns, v, at.data.astype(np.float64)


def _sparse(V: Any, W: np.ndarray, H: np.ndarray, known: Any, c: float, loss: Loss) -> _Parts:
    blocks = Blocks.of(*V.shape)
    error, entries, values, fit = (_Sums(blocks) for _ in range(4))
    each = error if loss.is_quadratic else _Sums(blocks)
    rows, columns, v, w = _entries(V, known)
    v = v / c
    y = np.concatenate(
        [
            np.einsum("ec,ec->e", W[rows[part]], H[columns[part]])
            for part in _parts(len(rows), max(1, _CHUNK // W.shape[1]))
        ]
        or [np.zeros(0)]
    )
    error.add_entries(rows, columns, w * (v - y) ** 2)
    if each is not error:
        each.add_entries(rows, columns, w * _losses(loss, v, y))
    values.add_entries(rows, columns, w * v)
    m, n = V.shape
    if known is not None:
        entries.add_entries(rows, columns, w)
        fit.add_entries(rows, columns, w * y)
    else:  # what is not stored is zero there, and its error the square of the fit
        _add_squares(error, W, H)
        error.add_entries(rows, columns, -(y**2))
        entries.add_product(np.ones((m, 1)), np.ones((n, 1)))
        fit.add_product(W, H)
        if each is not error:  # the loss of a zero is a multiple of its fit
            slope = loss.zero_slope or 0.0
            each.add_product(slope * W, H)
            each.add_entries(rows, columns, -slope * y)
    count = m * n if known is None else len(v)
    return error, float(w @ v**2), entries, values, fit, each, count


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
