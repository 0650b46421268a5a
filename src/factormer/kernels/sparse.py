"""Products of a sparse matrix with many factors that lie side by side, compiled by numba.

A few components are turned so that those of one row of a factor are neighbours, and are read once
for all stored entries of V: they stay in the cache meanwhile, which all of them would not. The twin
is `data.sparse.Sparse`. Imported by `kernels.sparse_products()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from factormer.kernels import tiles
from factormer.kernels.compile import array, jit, once
from factormer.kernels.products import transposed
from factormer.kernels.tiles import lanes

_VECTORS = 2
_gather = tiles.gather(_VECTORS)
WIDE = 2 * 16  # components at once, at most


def _multiply(starts, columns, values, X, x, out, o, turned, made):
    """Out = X Vᵀ for V (m, n) by rows, the columns x … x + n of X, and o … o + m of out.

    `turned` (n, WIDE) and `made` (m, WIDE) are overwritten.
    """
    (n, _), m, count, wide = turned.shape, len(starts) - 1, len(X), _VECTORS * lanes(X)
    for first in range(0, count, wide):
        some = min(wide, count)
        c = min(first, count - some)  # the last have some of those before them, if need be
        transposed(X, c, some, x, n, turned, 0, 0)
        for i in range(m):
            _gather(columns, values, starts[i], starts[i + 1], turned, made, i)
        transposed(made, 0, m, 0, some, out, c, o)


@once
def multiply(dtype: Any) -> Callable[..., None]:
    """The compiled `_multiply`, for numbers of this kind."""
    real = numba.from_dtype(np.dtype(dtype))
    places, matrix, values = array(types.int32, 1), array(real), array(real, 1)
    given = (array(types.int64, 1), places, values)
    each = (matrix, types.int64)
    return jit(types.void(*given, *each, *each, matrix, matrix))(_multiply)


def ready() -> None:
    """Compile all that this module has."""
    for dtype in (np.dtype("f4"), np.dtype("f8")):
        multiply(dtype)
