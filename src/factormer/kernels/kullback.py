"""Newton steps for dense data under Kullback–Leibler, compiled by numba.

The step is that of `kernels.divergence`. But rows of a factor lie side by side in the lanes of the
processor: the Hessians of all of them are sums over the rows of V with the same weights b_c b_e, so
that a few numbers are loaded for many multiplications. Arrays are flat, with `LANES` numbers in a
line: a constant, or the compiler would not see that lines are apart. The twin is `newton_row` in
tests/reference.py; see `kernels.compile` for what compilation asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from factormer.kernels.compile import array, jit, once
from factormer.kernels.entrywise import flat_of, logarithms, tiny_of

LANES = 64  # rows of a factor that are worked on at once


class Options(NamedTuple):
    """The weights of ‖x‖₁ and ‖x‖²/2, how far below v a fit is taken for, sweeps, what is held.

    `held` has a number above 0 for each component that is to stay as it is.
    """

    l1: float
    l2: float
    near: float
    n_sweeps: int
    held: np.ndarray


class Room(NamedTuple):
    """Scratch for `LANES` rows: arrays of lines, then logarithms and their exponents.

    `single` has lines for a number of each row: the slopes at the end of the way, their part that
    does not depend on the fit, how that bends, slopes in between, and how far to go.
    """

    fit: np.ndarray
    way: np.ndarray
    pull: np.ndarray
    curve: np.ndarray
    G: np.ndarray
    g: np.ndarray
    x: np.ndarray
    step: np.ndarray
    inverse: np.ndarray
    single: np.ndarray
    logs: np.ndarray
    exponents: np.ndarray

    @staticmethod
    def of(m: int, r: int, dtype: Any) -> Room:
        """For up to m numbers in a row of V, at rank r."""
        padded = (r + 3) // 4 * 4
        lines = (m, m, 4, 4, lines_of(r), padded, padded, padded, r, 5)
        return Room(
            *(np.zeros(k * LANES, dtype) for k in lines),
            logs=np.zeros(LANES),
            exponents=np.zeros(LANES, np.int64),
        )


def _place(c: int, e: int) -> int:
    """The line of G that has the Hessians' entry (c, e), e ≤ c; lines c begin at an even one."""
    half = c // 2
    return 2 * half * (half + 1) + (c % 2) * 2 * (half + 1) + e


def lines_of(r: int) -> int:
    """How many lines Hessians have."""
    return _place(r, 0)


place = jit(inner=True)(_place)


@jit(inner=True, inline=True)
def line(A, c):
    """The line c of an array of lines."""
    return A[c * LANES : (c + 1) * LANES]


@jit(inner=True, inline=True)
def _combine(weights, A, lanes, out):
    """Out = Σ_c weights_c A_c."""
    r = len(weights)
    for j in range(lanes):
        out[j] = 0
    for c in range(0, r, 4):
        d, e, f = min(c + 1, r - 1), min(c + 2, r - 1), min(c + 3, r - 1)
        w0, w1, w2, w3 = weights[c], weights[d], weights[e], weights[f]  # lines beyond r are zeros
        a = A[c * LANES : (c + 4) * LANES]
        for j in range(lanes):
            out[j] += (w0 * a[j] + w1 * a[j + LANES]) + (
                w2 * a[j + 2 * LANES] + w3 * a[j + 3 * LANES]
            )


@jit(inner=True)
def _model(V, other, first, width, lanes, near, room):
    """Take Σ (v/y) b from g, and make G = Σ (v/y²) b bᵀ, for a number of rows from the first."""
    x, fit, pull, curve, g, G = room.x, room.fit, room.pull, room.curve, room.g, room.G
    m, r = other.shape
    real = x.dtype.type
    zero, one, tiny = real(0), real(1), tiny_of(x)
    G[:] = zero
    for i in range(0, m, 4):
        for k in range(4):
            pull_k, curve_k = line(pull, k), line(curve, k)
            if i + k >= m:
                for j in range(lanes):
                    pull_k[j] = curve_k[j] = zero
                continue
            y, v = line(fit, i + k), V[i + k, first : first + width]
            _combine(other[i + k], x, lanes, y)
            for j in range(width):
                z = one / max(max(y[j], near * v[j]), tiny)
                ratio = v[j] * z
                pull_k[j] = ratio
                curve_k[j] = ratio * z
        b0, b1 = other[i], other[min(i + 1, m - 1)]
        b2, b3 = other[min(i + 2, m - 1)], other[min(i + 3, m - 1)]
        p = 0
        for c in range(r):
            w0, w1, w2, w3 = b0[c], b1[c], b2[c], b3[c]
            out = line(g, c)
            for j in range(lanes):
                out[j] -= (w0 * pull[j] + w1 * pull[j + LANES]) + (
                    w2 * pull[j + 2 * LANES] + w3 * pull[j + 3 * LANES]
                )
            for e in range(0, c + 1, 2):
                f = min(e + 1, r - 1)
                p0, p1, p2, p3 = w0 * b0[e], w1 * b1[e], w2 * b2[e], w3 * b3[e]
                q0, q1, q2, q3 = w0 * b0[f], w1 * b1[f], w2 * b2[f], w3 * b3[f]
                out = G[p * LANES : (p + 2) * LANES]
                for j in range(lanes):
                    a0, a1 = curve[j], curve[j + LANES]
                    a2, a3 = curve[j + 2 * LANES], curve[j + 3 * LANES]
                    out[j] += (p0 * a0 + p1 * a1) + (p2 * a2 + p3 * a3)
                    out[j + LANES] += (q0 * a0 + q1 * a1) + (q2 * a2 + q3 * a3)
                p += 2


@jit(inner=True)
def descend(options, lanes, G, g, x, step, inverse, move):
    """Sweeps on g·s + ½ s·G s over x + s ≥ 0 from s = 0; what is zero and should be, stays."""
    r = len(options.held)
    real = x.dtype.type
    zero, one, flat, slow = real(0), real(1), flat_of(x), real(1e-12)
    for j in range(lanes):
        move[j] = zero
    for c in range(r):
        G_cc = line(G, place(c, c))
        for j in range(lanes):
            move[j] = max(move[j], G_cc[j])
    for c in range(r):
        G_cc, inverse_c, g_c, x_c = (
            line(G, place(c, c)),
            line(inverse, c),
            line(g, c),
            line(x, c),
        )
        for j in range(lanes):
            bent = G_cc[j] > flat * move[j] and (x_c[j] > zero or g_c[j] < zero)
            inverse_c[j] = one / G_cc[j] if bent else -one / (slow * move[j])
    step[:] = zero
    for _ in range(options.n_sweeps):
        for c in range(r):
            if options.held[c] > 0:
                continue
            g_c, x_c, step_c = line(g, c), line(x, c), line(step, c)
            inverse_c = line(inverse, c)
            for j in range(lanes):  # without curvature (< 0) toward zero, where that descends
                least = -x_c[j] - step_c[j]
                newton = max(-g_c[j] * inverse_c[j], least)
                down = max(g_c[j] * inverse_c[j], least) if g_c[j] > zero else zero
                move[j] = newton if inverse_c[j] > zero else down
            for j in range(lanes):
                step_c[j] += move[j]
            for e in range(r):
                g_e, G_ce = line(g, e), line(G, place(max(c, e), min(c, e)))
                for j in range(lanes):
                    g_e[j] += move[j] * G_ce[j]


@jit(inner=True)
def search(V, first, width, fit, way, single):
    """How far to go from `fit` along `way`, where the slopes at the end of the way are `end`."""
    end, fixed, bend = line(single, 0), line(single, 1), line(single, 2)
    now, t = line(single, 3), line(single, 4)
    real, tiny = fit.dtype.type, tiny_of(fit)
    zero, half = real(0), real(0.5)
    for _try in range(12):  # a convex function falls to t if its mean slope does
        rising = False
        for j in range(width):
            rising |= end[j] > zero
            now[j] = fixed[j] + half * t[j] * bend[j]
        if not rising:
            break
        for i in range(len(V)):
            y, d, v = line(fit, i), line(way, i), V[i, first : first + width]
            for j in range(width):
                now[j] -= d[j] * v[j] / max(y[j] + half * t[j] * d[j], tiny)
        for j in range(width):
            if end[j] > zero:
                falls = now[j] + end[j] <= zero
                t[j] *= real(1) if falls else half
                end[j] = zero if falls else now[j]
    for j in range(width):
        t[j] = zero if end[j] > zero else t[j]


@jit(inner=True)
def leave(V, linear, out, first, width, options, wants_loss, fit, way, x, step, room):
    """Write the rows that the search has come to; returns their share of the loss."""
    t, logs = line(room.single, 4), room.logs
    zero, tiny, r = x.dtype.type(0), tiny_of(x), len(linear)
    l1, l2, loss = x.dtype.type(options.l1), x.dtype.type(options.l2), 0.0
    for j in range(width):
        for c in range(r):
            x_c = max(x[c * LANES + j] + t[j] * step[c * LANES + j], zero)
            out[first + j, c] = x_c
            loss += x_c * (linear[c] + l1 + l2 / 2 * x_c)
    if wants_loss:
        for i in range(len(V)):
            y, d, v = line(fit, i), line(way, i), V[i, first : first + width]
            for j in range(width):
                logs[j] = max(v[j], tiny) / max(y[j] + t[j] * d[j], tiny)
            logarithms(width, logs, room.exponents)
            for j in range(width):
                loss += v[j] * (logs[j] - 1)
    return loss


def _rows(V, other, linear, X, out, start, stop, options, wants_loss, room):
    """A Newton step for the rows start … stop of X, to `out`; returns their share of the loss.

    V is (m, n), `other` ≥ 0 (m, r) the other factor, `linear` the sum of its rows.
    """
    fit, way, G, g, x, step, single = (
        room.fit, room.way, room.G, room.g, room.x, room.step, room.single
    )  # fmt: skip
    m, r = other.shape
    real = X.dtype.type
    zero, one, tiny = real(0), real(1), tiny_of(X)
    l1, l2, near = real(options.l1), real(options.l2), real(options.near)
    end, fixed, bend, t = line(single, 0), line(single, 1), line(single, 2), line(single, 4)
    loss = 0.0
    for first in range(start, stop, LANES):
        width = min(LANES, stop - first)
        lanes = (width + 15) // 16 * 16
        room.pull[:], room.curve[:] = zero, zero
        for c in range(r):
            x_c, g_c = line(x, c), line(g, c)
            for j in range(lanes):
                x_c[j] = max(X[first + j, c], zero) if j < width else zero
                g_c[j] = linear[c] + l1 + l2 * x_c[j]
        _model(V, other, first, width, lanes, near, room)
        for c in range(r):
            G_cc = line(G, place(c, c))
            for j in range(lanes):
                G_cc[j] += l2
        descend(options, lanes, G, g, x, step, room.inverse, end)
        for j in range(lanes):
            fixed[j], bend[j], end[j], t[j] = zero, zero, zero, one
        for c in range(r):
            x_c, step_c = line(x, c), line(step, c)
            for j in range(lanes):
                fixed[j] += step_c[j] * (linear[c] + l1 + l2 * x_c[j])
                bend[j] += l2 * step_c[j] * step_c[j]
        for i in range(m):
            y, d, v = line(fit, i), line(way, i), V[i, first : first + width]
            _combine(other[i], step, lanes, d)
            for j in range(width):
                end[j] -= d[j] * v[j] / max(y[j] + d[j], tiny)
        for j in range(width):
            end[j] += fixed[j] + bend[j]
        search(V, first, width, fit, way, single)
        loss += leave(V, linear, out, first, width, options, wants_loss, fit, way, x, step, room)
    return loss


def room_of(real: Any) -> Any:
    """The type of a `Room`."""
    vector, whole = array(real, 1), array(types.int64, 1)
    return types.NamedTuple([*[vector] * 10, array(types.float64, 1), whole], Room)


OPTIONS = types.NamedTuple([*[types.float64] * 3, types.int64, array(types.float64, 1)], Options)


@once
def rows(dtype: Any) -> Callable[..., float]:
    """The compiled half-step for arrays of float32 or float64: `_rows`."""
    real = numba.from_dtype(dtype)
    matrix, vector, count = array(real), array(real, 1), types.int64
    signature = types.float64(
        matrix, matrix, vector, matrix, matrix, count, count, OPTIONS, types.boolean,
        room_of(real),
    )  # fmt: skip
    return jit(signature)(_rows)


rows_within = jit(inner=True)(_rows)  # for compiled callers
