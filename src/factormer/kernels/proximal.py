"""The steps of ADMM on single entries, for any β-divergence with weights, compiled by numba.

Imported by `kernels.proximal_entries()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numba
import numpy as np
from numba import types

from factormer.kernels.compile import array, jit, once

_EPS = 2.220446049250313e-16


@jit(inner=True)
def _power(y, p):
    """Y to the power of p, without logarithms where roots will do."""
    if p == 2.0:
        return y * y
    if p == 1.5:
        return y * sqrt(y)
    if p == 1.0:
        return y
    return sqrt(y) if p == 0.5 else y**p


@jit(inner=True)
def _newton(v, x, weight, y, beta, least):
    """The y that minimises weight·d(v, y) + ½(y − x)²: Newton's method from y, between bounds."""
    low, high = max(min(x, v), least), max(max(x, v), least)
    p, q, blur = max(2.0 - beta, 0.0), max(beta - 2.0, 0.0), 16.0 * _EPS * (v + abs(x))
    if p > 0.0 and x <= 0.0:
        low = (weight * v / 2.0 / max(v - x, 1e-300)) ** (1.0 / p)
        low = max(min(low, v / 2.0), least)
    y = min(max(y, low), high)
    y = high if y < 1e-9 * high else y  # where products would vanish, a guess is none
    for k in range(40):
        before, up, down = y, 1.0, weight
        if p > 0.0:
            up = _power(y, p)
        else:
            down *= _power(y, q)
        above, beyond = down * (y - v), up * (y - x)  # their sum is the slope, times y^(2 − β)
        if above + beyond < 0.0:
            low = y
        else:
            high = y
        y -= (above + beyond) * y / ((down + up) * y + q * above + p * beyond)
        if low <= y <= high:
            if abs(y - before) <= 1e-9 * y + blur:
                break
        elif high - low <= blur:
            y = high
            break
        else:  # from the upper bound Newton's method comes down; from a guess it may not
            y = high if k == 0 else sqrt(low) * sqrt(high)
    return y


def _entries(values, weights, fit, Y, Z, start, stop, beta, least):
    one, two = values.dtype.type(1), values.dtype.type(2)
    if beta == 1.0:  # without a branch, so that lanes do it side by side
        for i in range(start, stop):
            x, weight = fit[i] - Z[i], weights[i]
            shifted = x - weight
            far = (abs(shifted) + np.sqrt(shifted * shifted + two * two * weight * values[i])) / two
            near = weight * values[i] / (far if far > 0 else one)
            Y[i] = (far if shifted > 0 else near) if weight > 0 else x
            Z[i] = Y[i] - x
    elif beta == 2.0:
        for i in range(start, stop):
            x = fit[i] - Z[i]
            Y[i] = (x + weights[i] * values[i]) / (one + weights[i])
            Z[i] = Y[i] - x
    else:
        for i in range(start, stop):
            x, y = float(fit[i]) - float(Z[i]), float(Y[i])
            if weights[i] > 0:
                y = _newton(float(values[i]), x, float(weights[i]), y, beta, least)
            else:
                y = x
            Y[i], Z[i] = y, y - x


@once
def entries(dtype: Any) -> Callable[..., None]:
    """(Y, Z) → (prox of d at fit − Z, Z + Y − fit), in place; the twin is `losses.Beta.prox`."""
    vector, count, real = array(numba.from_dtype(dtype), 1), types.int64, types.float64
    return jit(types.void(*[vector] * 5, count, count, real, real))(_entries)
