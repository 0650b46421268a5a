"""The sums of rows and of their squares, in one reading, compiled by numba.

The twin is `data.parts.survey`. Imported by `kernels.surveying()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from factormer.kernels.compile import array, jit, once


def _sums(V, start, stop, out):
    """out_i = Σ_j V_ij and Σ_j V_ij² in float64; returns the sum of all negative entries."""
    below = 0.0
    for i in range(start, stop):
        row, total, squares, negative = V[i], 0.0, 0.0, 0.0
        for j in range(len(row)):
            v = np.float64(row[j])
            total += v
            squares += v * v
            negative += v if v < 0.0 else 0.0
        out[i, 0] = total
        out[i, 1] = squares
        below += negative
    return below


@once
def sums(dtype: Any) -> Callable[..., float]:
    """The compiled `_sums`."""
    matrix, real = array(numba.from_dtype(np.dtype(dtype))), types.float64
    return jit(real(matrix, types.int64, types.int64, array(real)))(_sums)
