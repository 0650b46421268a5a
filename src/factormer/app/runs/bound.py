"""The least error that any factorization of a rank can have: that of the truncated SVD."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.sparse.linalg import svds

from factormer.app.runs.residuals import peak
from factormer.data.intake import is_sparse

_SMALL = 1000  # side up to which the Gram matrix is decomposed as a whole
_ROUNDING = 4 * np.finfo(np.float64).eps  # of a sum of squares, for each entry of the longer side


def svd_bound(V: Any, max_rank: int) -> Float[np.ndarray, " k"]:
    """RMSE of the best approximation of each rank 0 … k ≤ max_rank (Eckart & Young, 1936).

    Bounds the RMSE of every W Hᵀ from below, whatever loss W and H were fitted by. Differences of
    squares that are no more than rounding are 0, which is always a bound.
    """
    m, n = V.shape
    V = V.astype(np.float64) / (c := peak(V))  # so that squares are finite
    k = min(max_rank, m, n)
    entries = np.ravel(V.data if is_sparse(V) else V)
    sq_norm = float(entries @ entries)
    if min(m, n) <= _SMALL or k > min(m, n) // 4:
        A = V if m >= n else V.T
        gram = (A.T @ A).toarray() if is_sparse(V) else A.T @ A
        side = len(gram)
        squares = scipy.linalg.eigvalsh(gram, subset_by_index=(side - k, side - 1))[::-1]
    else:
        start = np.ones(min(m, n)) / np.sqrt(min(m, n))  # otherwise ARPACK draws a random one
        values: Any = svds(V, k=k, v0=start, return_singular_vectors=False)
        squares = np.sort(values)[::-1] ** 2
    left = sq_norm - np.concatenate([[0.0], np.cumsum(squares)])
    left[left <= _ROUNDING * max(m, n) * sq_norm] = 0.0
    if k == min(m, n):
        left[k] = 0.0
    return c * np.sqrt(left / (m * n))
