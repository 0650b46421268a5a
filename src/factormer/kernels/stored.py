"""The fit at stored entries of a sparse matrix, and sums over them, compiled by numba.

The twins are in `problem.entrywise`. Imported by `kernels.stored_entries()` alone, where numba is
present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from factormer.kernels.compile import array, jit, once


def _fits(starts, columns, W, H, y):
    """Y = (W Hᵀ)_ij at each stored entry ij."""
    for i in range(len(starts) - 1):
        w = W[i]
        for k in range(starts[i], starts[i + 1]):
            h, total = H[columns[k]], w[0] * 0
            for c in range(len(w)):
                total += w[c] * h[c]
            y[k] = total


def _sums(starts, columns, parts, W, out):
    """Out_j = out_j + Σ_i parts_ij W_i over the stored entries."""
    for i in range(len(starts) - 1):
        w = W[i]
        for k in range(starts[i], starts[i + 1]):
            to, part = out[columns[k]], parts[k]
            for c in range(len(w)):
                to[c] += part * w[c]


def _types(dtype: Any) -> tuple[Any, Any, Any]:
    real = numba.from_dtype(np.dtype(dtype))
    return array(types.int64, 1), array(real), array(real, 1)


@once
def fits(dtype: Any) -> Callable[..., None]:
    """The compiled `_fits`."""
    places, matrix, values = _types(dtype)
    return jit(types.void(places, places, matrix, matrix, values))(_fits)


@once
def sums(dtype: Any) -> Callable[..., None]:
    """The compiled `_sums`."""
    places, matrix, values = _types(dtype)
    return jit(types.void(places, places, values, matrix, matrix))(_sums)
