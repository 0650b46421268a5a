"""Newton steps for large dense data under Kullback–Leibler: what they need beside products.

The step is that of `kernels.kullback`, which is the twin. There each row of V adds to the Hessians,
which is most of the work. Here the Hessians of many rows of a factor are one product, of all
b_c b_e with the weights, and BLAS makes it several times faster. Rows are in groups of `LANES`;
arrays are flat, as (group, line, lane). See `kernels.compile` for what compilation asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
from numba import types

from factormer.kernels.compile import array, jit, once
from factormer.kernels.entrywise import tiny_of
from factormer.kernels.kullback import (
    LANES,
    OPTIONS,
    descend,
    leave,
    line,
    place,
    room_of,
    search,
)


class Parts(NamedTuple):
    """The compiled functions: `_pairs`, `_spread`, `_weigh`, `_steps`, `_leave`."""

    pairs: Callable[..., None]
    spread: Callable[..., None]
    weigh: Callable[..., None]
    steps: Callable[..., None]
    leave: Callable[..., float]


@jit(inner=True, inline=True)
def _group(A, k, n_lines):
    size = n_lines * LANES
    return A[k * size : (k + 1) * size]


def _pairs(BT, out):
    """The products b_c b_e of the rows of B, (lines, m), in the order of Hessians."""
    r, m = BT.shape
    for c in range(r):
        for e in range(c + 1):
            b, d, product = BT[c], BT[e], out[place(c, e)]
            for i in range(m):
                product[i] = b[i] * d[i]


def _spread(X, first, stop, x):
    """The nonnegative part of the rows first … stop of X, by groups; zeros beyond the last."""
    r = X.shape[1]
    zero = X.dtype.type(0)
    for k in range((stop - first + LANES - 1) // LANES):
        x_k, start = _group(x, k, r), first + k * LANES
        width = min(LANES, stop - start)
        for c in range(r):
            x_c = line(x_k, c)
            for j in range(LANES):
                x_c[j] = max(X[start + j, c], zero) if j < width else zero


def _weigh(V, first, stop, options, fit, pull, curve):
    """The weights v/y and v/y², where y is the fit; zeros beyond the last row."""
    m = len(V)
    real = fit.dtype.type
    one, near, tiny = real(1), real(options.near), tiny_of(fit)
    for k in range((stop - first + LANES - 1) // LANES):
        fit_k, pull_k, curve_k = _group(fit, k, m), _group(pull, k, m), _group(curve, k, m)
        start = first + k * LANES
        width = min(LANES, stop - start)
        for i in range(m):
            y, p, q, v = (
                line(fit_k, i),
                line(pull_k, i),
                line(curve_k, i),
                V[i, start : start + width],
            )
            for j in range(width):
                z = one / max(max(y[j], near * v[j]), tiny)
                ratio = v[j] * z
                p[j] = ratio
                q[j] = ratio * z
            for j in range(width, LANES):
                p[j] = q[j] = real(0)


def _steps(linear, n_groups, options, pulled, hessians, x, steps, room):
    """The steps to the minimum of each model, from Σ (v/y) b and the Hessians of Σ d."""
    r = len(linear)
    l1, l2 = x.dtype.type(options.l1), x.dtype.type(options.l2)
    for k in range(n_groups):
        pulled_k, G, x_k = _group(pulled, k, r), _group(hessians, k, place(r, 0)), _group(x, k, r)
        for c in range(r):
            g_c, p_c, x_c, G_cc = (
                line(room.g, c),
                line(pulled_k, c),
                line(x_k, c),
                line(G, place(c, c)),
            )
            for j in range(LANES):
                g_c[j] = linear[c] + l1 + l2 * x_c[j] - p_c[j]
                G_cc[j] += l2
        move = line(room.single, 0)
        descend(options, LANES, G, room.g, x_k, _group(steps, k, r), room.inverse, move)


def _leave(V, linear, out, first, stop, options, wants_loss, fit, way, x, steps, room):
    """Go along the way as far as the loss falls, and write the rows; returns their loss."""
    m, r = len(V), len(linear)
    real = x.dtype.type
    zero, one, tiny, loss = real(0), real(1), tiny_of(x), 0.0
    l1, l2 = real(options.l1), real(options.l2)
    single = room.single
    end, fixed, bend, t = line(single, 0), line(single, 1), line(single, 2), line(single, 4)
    for k in range((stop - first + LANES - 1) // LANES):
        fit_k, way_k = _group(fit, k, m), _group(way, k, m)
        x_k, step_k, start = _group(x, k, r), _group(steps, k, r), first + k * LANES
        width = min(LANES, stop - start)
        for j in range(LANES):
            fixed[j], bend[j], end[j], t[j] = zero, zero, zero, one
        for c in range(r):
            x_c, step_c = line(x_k, c), line(step_k, c)
            for j in range(LANES):
                fixed[j] += step_c[j] * (linear[c] + l1 + l2 * x_c[j])
                bend[j] += l2 * step_c[j] * step_c[j]
        for i in range(m):
            y, d, v = line(fit_k, i), line(way_k, i), V[i, start : start + width]
            for j in range(width):
                end[j] -= d[j] * v[j] / max(y[j] + d[j], tiny)
        for j in range(width):
            end[j] += fixed[j] + bend[j]
        search(V, start, width, fit_k, way_k, single)
        loss += leave(
            V, linear, out, start, width, options, wants_loss, fit_k, way_k, x_k, step_k, room
        )
    return loss


@once
def parts(dtype: Any) -> Parts:
    """The compiled functions for arrays of float32 or float64."""
    real = numba.from_dtype(dtype)
    matrix, vector, count, room = array(real), array(real, 1), types.int64, room_of(real)
    rows = (count, count)
    ends = (OPTIONS, types.boolean, *[vector] * 4, room)
    return Parts(
        pairs=jit(types.void(matrix, matrix))(_pairs),
        spread=jit(types.void(matrix, *rows, vector))(_spread),
        weigh=jit(types.void(matrix, *rows, OPTIONS, *[vector] * 3))(_weigh),
        steps=jit(types.void(vector, count, OPTIONS, *[vector] * 4, room))(_steps),
        leave=jit(types.float64(matrix, vector, matrix, *rows, *ends))(_leave),
    )
