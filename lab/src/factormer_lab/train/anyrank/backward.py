"""Sweeps of HALS backwards, compiled: what training on a CPU spends its time in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import types

from factormer.kernels.compile import array, jit, once

_LANES = 128  # rows that are worked on at once; they stay in the cache


def _back(G, inverse, after, by, scaled):
    """The gradient `by` (r, n) of where a sweep ended becomes that of where it began, in place.

    `scaled` (r, n) becomes the gradient by the right-hand side. `after` (r, n) is where the sweep
    ended, and `inverse` 1 / G_cc, or 0 for components that were left alone.
    """
    r, n = by.shape
    for first in range(0, n, _LANES):
        last = min(first + _LANES, n)
        for c in range(r - 1, -1, -1):
            by_c, x_c, s_c = by[c, first:last], after[c, first:last], scaled[c, first:last]
            scale = inverse[c]
            for j in range(last - first):
                own = by_c[j] if x_c[j] > 0 else by_c[j] * 0
                s_c[j] = own * scale
                by_c[j] = own if scale == 0 else own * 0
            if scale == 0:
                continue
            for k in range(r):
                if k != c:
                    by_k, g = by[k, first:last], G[k, c]
                    for j in range(last - first):
                        by_k[j] -= g * s_c[j]


@once
def back(dtype: Any) -> Callable[..., None]:
    """The compiled way back of one sweep over one matrix's rows."""
    real = numba.from_dtype(dtype)
    matrix = array(real)
    return jit(types.void(matrix, array(real, 1), matrix, matrix, matrix))(_back)
