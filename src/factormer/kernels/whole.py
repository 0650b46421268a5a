"""A random start, V over its mean, and components in order and to scale, for compiled callers.

Imported where numba is present alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types

from factormer.kernels.compile import array, jit, once
from factormer.kernels.products import transposed

_LEAST = 1e-100  # mean of V, or its inverse, beyond which single calls take more care
_STEP, _APART = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S1, _S27, _S30, _S31, _S40 = (np.uint64(k) for k in (1, 27, 30, 31, 40))


@jit(inner=True)
def _mixed(x):
    """The twin is `data.draws.mixed`."""
    x += _STEP
    x ^= x >> _S30
    x *= _FIRST
    x ^= x >> _S27
    x *= _SECOND
    return x ^ (x >> _S31)


@jit(inner=True)
def _draw(seed, scale, x, start, stop):
    """The numbers of a seed for these columns of x, times `scale`; `data.draws.uniform`."""
    r = np.uint64(len(x))
    for c in range(len(x)):
        x_c, k = x[c], np.uint64(c)
        for j in range(start, stop):
            x_c[j] = float(_mixed(k * _APART + seed) >> _S40) * 2.0**-24 * scale
            k += r


@jit(inner=True)
def drawn(seed, scale, x, m):
    """A random start [Wᵀ, Hᵀ] of a seed, times `scale`, with m rows of W."""
    _draw(seed, scale, x, 0, m)
    _draw(_mixed(seed) >> _S1, scale, x, m, x.shape[1])


@jit(inner=True)
def copied(V, data):
    """V over its mean, and its transpose, to `data`; returns the mean and the sum of squares."""
    (m, n), total, squares = V.shape, 0.0, 0.0
    for i in range(m):
        row = V[i]
        for j in range(n):
            total += row[j]
    mean = total / (m * n) if total > 0 else 1.0
    if not _LEAST < mean < 1 / _LEAST:
        return mean, 0.0
    times = 1 / mean
    for i in range(m):
        row, to = V[i], data.V[i]
        for j in range(n):
            x = row[j] * times
            to[j] = x
            squares += x * x
    transposed(data.V, 0, m, 0, n, data.VT, 0, 0)
    return mean, squares


def _write(kept, unit, order, mode, W, H, room):
    """Components by share, the largest first, and to scale, on V times `unit`, by rows to W and H.

    The twin is `run.order.canonical`; mode 0 leaves the scale, 1 balances, 2 lets columns of H sum
    to 1. `room` (3, r) is overwritten.
    """
    (r, both), m, root, whole = kept.shape, len(W), unit**0.5, 0.0
    shares, times, places = room[0], room[1], room[2]
    for c in range(r):
        times[c] = 1.0
        ws = hs = ww = hh = 0.0
        for j in range(m):
            ws += kept[c, j]
            ww += kept[c, j] ** 2
        for j in range(m, both):
            hs += kept[c, j]
            hh += kept[c, j] ** 2
        shares[c], places[c] = ws * hs, c
        whole += ws * hs
        if mode == 1 and ww > 0 and hh > 0:
            times[c] = (hh / ww) ** 0.25
        elif mode == 2 and hs > 0:
            times[c] = hs * root
    for c in range(r):
        shares[c] = round(1e9 * shares[c] / whole) if whole > 0 else 0.0
    if order:
        for c in range(1, r):
            k = c
            while k > 0 and shares[int(places[k])] > shares[int(places[k - 1])]:
                places[k], places[k - 1] = places[k - 1], places[k]
                k -= 1
    for k in range(r):
        c = int(places[k])
        for j in range(m):
            W[j, k] = kept[c, j] * times[c] * root
        for j in range(m, both):
            H[j - m, k] = kept[c, j] / times[c] * root


@once
def write() -> Callable[..., None]:
    """The compiled `_write`."""
    matrix = array(types.float64)
    given = (matrix, types.float64, types.boolean, types.int64, *[matrix] * 3)
    return jit(types.void(*given))(_write)
