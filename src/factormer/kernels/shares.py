"""Steps of ADMM whose rows are independent: shares with a sum, or entries with L1.

Compiled by numba, some rows side by side. Factors are (r, n) here, as in `kernels.loops`. Imported
by `kernels.admm_rows()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from factormer.kernels.compile import array, jit, once

ROWS = 32  # side by side


@jit(inner=True)
def _thresholds(x, total, tau, count, stay, above, width):
    """For each row, the τ at which the positive parts of x − τ have that sum (Michelot, 1986).

    All entries are taken to stay, then those above the τ that follows from this, until none leaves.
    The largest entry of a row is 0, and is one of those.
    """
    r, zero, one = len(x), x.dtype.type(0), x.dtype.type(1)
    for i in range(width):
        tau[i], count[i] = -total, r
    for c in range(r):
        for i in range(width):
            tau[i] += x[c, i]
    for i in range(width):
        tau[i] /= r
    for _ in range(r):
        for i in range(width):
            stay[i], above[i] = zero, -total
        for c in range(r):
            for i in range(width):
                stays = x[c, i] > tau[i]
                stay[i] += one if stays else zero
                above[i] += x[c, i] if stays else zero
        left = zero
        for i in range(width):
            less = zero < stay[i] and stay[i] < count[i]  # none where x is not a number
            left += one if less else zero
            tau[i] = above[i] / max(stay[i], one) if less else tau[i]
            count[i] = stay[i] if less else count[i]
        if left < one:
            break


def _steps(F, P, H, U, n_steps, less, total, h, u, x, each, start, stop):
    """Steps H ← prox(F + (H + U)P − U), U ← U + H − H_free, of the rows start … stop, in place.

    With a `total` above 0 the prox is the projection onto rows of that sum, otherwise entries less
    `less`, at least 0. The arrays from h on are room.
    """
    r, zero, top, tau = len(F), F.dtype.type(0), each[0], each[1]
    for a in range(start, stop, ROWS):
        width = min(ROWS, stop - a)
        for c in range(r):
            for i in range(width):
                h[c, i], u[c, i] = H[c, a + i], U[c, a + i]
        for _ in range(n_steps):
            for c in range(r):
                for i in range(width):
                    h[c, i] += u[c, i]
            for c in range(r):
                for i in range(width):
                    x[c, i] = F[c, a + i] - u[c, i]
                for k in range(r):
                    p = P[k, c]
                    for i in range(width):
                        x[c, i] += p * h[k, i]
            if total > 0:
                for i in range(width):
                    top[i] = x[0, i]
                for c in range(1, r):
                    for i in range(width):
                        top[i] = max(top[i], x[c, i])
                for c in range(r):
                    for i in range(width):
                        x[c, i] -= top[i]
                _thresholds(x, total, tau, each[2], each[3], each[4], width)
            else:
                for i in range(width):
                    top[i], tau[i] = zero, less
            for c in range(r):
                for i in range(width):
                    above = x[c, i] - tau[i]
                    h[c, i] = zero if above <= 0 else above  # and NaN stays
                    u[c, i] = h[c, i] - (x[c, i] + top[i])
        for c in range(r):
            for i in range(width):
                H[c, a + i], U[c, a + i] = h[c, i], u[c, i]


@once
def steps(dtype: Any) -> Callable[..., None]:
    """The compiled steps; the twin is the loop of `solvers.proximal.admm_quadratic`."""
    real, number = numba.from_dtype(dtype), types.int64
    matrix = array(real)
    return jit(types.void(*[matrix] * 4, number, real, real, *[matrix] * 4, number, number))(_steps)


def room_for_rows(r: int, dtype: Any) -> list[np.ndarray]:
    """Room for the steps of some rows at rank r."""
    return [np.empty((size, ROWS), dtype) for size in (r, r, r, 5)]
