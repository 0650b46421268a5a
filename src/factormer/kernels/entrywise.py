"""What the kernels for other losses do to single entries, compiled into each of them by numba.

Imported where numba is present alone.
"""

from __future__ import annotations

import numpy as np

from factormer.kernels.compile import jit

_SQRT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½


@jit(inner=True)
def logarithms(k, x, exponent):
    """Natural logarithms of x > 0, in place: lanes take them side by side, unlike libm's."""
    bits = x.view(np.int64)
    for i in range(k):
        exponent[i] = (bits[i] - _SQRT_HALF) >> 52
        bits[i] -= exponent[i] << 52
    for i in range(k):
        z = (x[i] - 1) / (x[i] + 1)
        s = z * z
        p = 1 / 15 + s * (1 / 17 + s * (1 / 19 + s / 21))
        p = 1 / 7 + s * (1 / 9 + s * (1 / 11 + s * (1 / 13 + s * p)))
        p = 1 / 3 + s * (1 / 5 + s * p)
        x[i] = 2 * z * (1 + s * p) + exponent[i] * 0.6931471805599453


@jit(inner=True)
def tiny_of(v):
    """A number so small that to divide by it is to divide by zero, but finite."""
    return v.dtype.type(1e4) * np.finfo(v.dtype).tiny


@jit(inner=True)
def flat_of(v):
    """The curvature, as a share of the largest, of a direction that is only rounding."""
    return np.finfo(v.dtype).eps * np.finfo(v.dtype).eps
