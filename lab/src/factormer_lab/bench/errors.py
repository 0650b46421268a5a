"""The error of a factorization, whoever made it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse

EXACT = 1e-3  # of the mean of V; an error below it counts as this: what is left is no one's merit
_BLOCK = 512  # rows of the residual that are formed at once


def feasible(W: Any, H: Any) -> bool:
    """Return whether both factors are finite and nonnegative."""
    return all(bool(np.isfinite(F).all() and (np.asarray(F) >= 0).all()) for F in (W, H))


def rmse(V: Any, W: Any, H: Any) -> float:
    """Return the root mean square error in float64, infinite for factors that are not feasible."""
    if not feasible(W, H):
        return math.inf
    W, H = np.asarray(W, np.float64), np.asarray(H, np.float64)
    if scipy.sparse.issparse(V):
        total = np.vdot(V.data, V.data) - 2 * np.vdot(V @ H, W) + np.vdot(W.T @ W, H.T @ H)
    else:
        starts = range(0, len(V), _BLOCK)
        total = sum(np.square(V[a : a + _BLOCK] - W[a : a + _BLOCK] @ H.T).sum() for a in starts)
    return math.sqrt(max(float(total), 0.0) / (V.shape[0] * V.shape[1]))


def divergence(V: Any, W: Any, H: Any) -> float:
    """Return the generalised Kullback–Leibler divergence in float64, over the number of entries."""
    if not feasible(W, H):
        return math.inf
    W, H = np.asarray(W, np.float64), np.asarray(H, np.float64)
    total = float(W.sum(0) @ H.sum(0))
    stored = scipy.sparse.coo_matrix(V)
    for a in range(0, stored.nnz, 100_000):
        at = slice(a, a + 100_000)
        v = stored.data[at]
        y = np.einsum("ic,ic->i", W[stored.row[at]], H[stored.col[at]])
        y = np.maximum(y[v > 0], np.finfo(float).tiny)
        v = v[v > 0]
        total += float((v * np.log(v / y) - v).sum())
    return total / (V.shape[0] * V.shape[1])


ERRORS = {"frobenius": rmse, "kullback-leibler": divergence}
