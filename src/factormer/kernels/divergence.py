"""Newton steps on the rows of a half-step under any β-divergence, compiled for the CPU by numba.

A row x ≥ 0 of a factor minimises Σᵢ ωᵢ d(vᵢ, yᵢ) + λ₁Σx + λ₂‖x‖²/2 with y = Bx, B the other factor.
One step: the quadratic model of that at x, lowered by sweeps of coordinate descent, and a search
along the way there. Parts of d that are concave are replaced by their tangent, so the model is
convex and bounds d from above; the search needs derivatives alone, no logarithm. As
`kernels.compile` asks for, there is one signature for each precision, and no memory is allocated
within; the numbers in the loops are of that precision too, since others would widen all they meet.
The twin is `newton_row` in tests/reference.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import types

from factormer.kernels.compile import array, jit, once
from factormer.kernels.entrywise import flat_of, logarithms, tiny_of

_CHUNK = 512  # entries of a row whose share of the Hessian is summed while they are in the cache


@jit(inner=True)
def _slopes(k, options, v, weight, y, d, frozen, slope, t):
    """Σ d·d′(y + t d), with the parts that are frozen; it is written to `slope` by entries."""
    real, tiny = v.dtype.type, tiny_of(v)
    zero, one = real(0), real(1)
    beta, hold, total = options[0], real(1 - options[3]), zero
    if beta == 1:
        for i in range(k):
            slope[i] = weight[i] * (hold - v[i] / max(y[i] + t * d[i], tiny))
    elif beta == 2:
        for i in range(k):
            slope[i] = weight[i] * (y[i] + t * d[i] - v[i])
    elif beta == 0:
        for i in range(k):
            z = one / max(y[i] + t * d[i], tiny)
            fall = v[i] * z * z  # infinite where the fit is zero
            slope[i] = frozen[i] - weight[i] * fall if weight[i] > zero else zero
    else:
        for i in range(k):
            z = max(y[i] + t * d[i], tiny)
            power = z ** (beta - 2)
            up, down = power * z, power * v[i]
            up = 0 * up if beta < 1 else up
            down = 0 * down if beta > 2 else down
            slope[i] = frozen[i] + weight[i] * (up - down) if weight[i] > zero else zero
    for i in range(k):
        total += d[i] * slope[i]
    return total


@jit(inner=True)
def _model(k, options, v, weight, y, slope, curve, frozen):
    """Slope and curvature by entries; far below v, those of the point at `near` times v."""
    real, tiny = v.dtype.type, tiny_of(v)
    one, two = real(1), real(2)
    beta, near, hold = options[0], real(options[4]), real(1 - options[3])
    if beta == 1:
        for i in range(k):
            z = one / max(max(y[i], near * v[i]), tiny)
            ratio = v[i] * z
            slope[i] = weight[i] * (hold - ratio)
            curve[i] = weight[i] * ratio * z
    elif beta == 2:
        for i in range(k):
            slope[i] = weight[i] * (y[i] - v[i])
            curve[i] = weight[i]
    elif beta == 0:
        for i in range(k):
            z = one / max(max(y[i], near * v[i]), tiny)
            frozen[i] = weight[i] * z
            slope[i] = weight[i] * z * (one - v[i] * z)
            curve[i] = two * weight[i] * v[i] * z * z * z
    else:
        for i in range(k):
            z = max(max(y[i], near * v[i]), tiny)
            power = weight[i] * z ** (beta - 2)
            slope[i] = power * (z - v[i])
            frozen[i] = 0
            if beta < 1:
                frozen[i] = power * z
                curve[i] = (2 - beta) * power * v[i] / z
            elif beta > 2:
                frozen[i] = -power * v[i]
                curve[i] = (beta - 1) * power
            else:
                curve[i] = power * ((beta - 1) + (2 - beta) * v[i] / z)


@jit(inner=True)
def _hessian(k, ld, B, curve, wide, G, at, r):
    """G = B diag(curve) Bᵀ for the r rows `at` of B, in rows of `ld`, by chunks for the cache."""
    for c in range(r):
        for e in range(r):
            G[c, e] = 0
    for first in range(0, k, _CHUNK):
        n = min(_CHUNK, k - first)
        q = curve[first : first + n]
        for c in range(r):
            b = B[at[c] * ld + first : at[c] * ld + first + n]
            for i in range(n):
                wide[i] = b[i] * q[i]
            e = 0
            while e + 4 <= c + 1:
                b0 = B[at[e] * ld + first : at[e] * ld + first + n]
                b1 = B[at[e + 1] * ld + first : at[e + 1] * ld + first + n]
                b2 = B[at[e + 2] * ld + first : at[e + 2] * ld + first + n]
                b3 = B[at[e + 3] * ld + first : at[e + 3] * ld + first + n]
                t0, t1, t2, t3 = G[c, e], G[c, e + 1], G[c, e + 2], G[c, e + 3]
                for i in range(n):
                    t0 += wide[i] * b0[i]
                    t1 += wide[i] * b1[i]
                    t2 += wide[i] * b2[i]
                    t3 += wide[i] * b3[i]
                G[c, e], G[c, e + 1], G[c, e + 2], G[c, e + 3] = t0, t1, t2, t3
                e += 4
            while e <= c:
                b0 = B[at[e] * ld + first : at[e] * ld + first + n]
                t0 = G[c, e]
                for i in range(n):
                    t0 += wide[i] * b0[i]
                G[c, e] = t0
                e += 1
    for c in range(r):
        for e in range(c):
            G[e, c] = G[c, e]


@jit(inner=True)
def _divergence(k, options, v, weight, y, logs, exponents):
    """Σ ω d(v, y); of β = 1 without its term y where `has_linear`."""
    tiny = tiny_of(v)
    beta, has_linear, total = options[0], options[3], 0.0
    if beta == 2:
        for i in range(k):
            total += weight[i] * (y[i] - v[i]) * (y[i] - v[i])
        return total / 2
    if beta == 1 or beta == 0:
        for i in range(k):
            logs[i] = max(v[i], tiny) / max(y[i], tiny)
        if beta == 0:
            for i in range(k):
                total += weight[i] * (logs[i] - 1)
        logarithms(k, logs, exponents)
        if beta == 0:
            for i in range(k):
                total -= weight[i] * logs[i]
        else:
            for i in range(k):
                total += weight[i] * (v[i] * (logs[i] - 1) + (1 - has_linear) * y[i])
        return total
    for i in range(k):
        z = max(y[i], tiny)
        power = z ** (beta - 1)
        whole_v = v[i] ** beta if v[i] > 0 else 0 * z
        total += weight[i] * (whole_v + power * ((beta - 1) * z - beta * v[i]))
    return total / (beta * (beta - 1))


@jit(inner=True)
def _combine(k, ld, B, x, y):
    """Y = Σ_c x_c B_c."""
    zero = x.dtype.type(0)
    for i in range(k):
        y[i] = zero
    for c in range(len(x)):
        if x[c] != zero:
            b, x_c = B[c * ld : c * ld + k], x[c]
            for i in range(k):
                y[i] += x_c * b[i]


@jit(inner=True)
def _descend(n_sweeps, G, g, x, step, at, r):
    """Sweeps on g·s + ½ s·G s over x + s ≥ 0 from s = 0, on the r coordinates `at` of x and s."""
    real = x.dtype.type
    zero = real(0)
    largest, flat, slow = zero, flat_of(x), real(1e-12)
    for c in range(len(x)):
        step[c] = 0
    for c in range(r):
        largest = max(largest, G[c, c])
    for _ in range(n_sweeps):
        for c in range(r):
            if G[c, c] > flat * largest:
                move = max(-g[c] / G[c, c], -x[at[c]] - step[at[c]])
            else:  # no curvature: toward zero where that descends, else nowhere; not by rounding
                least = -x[at[c]] - step[at[c]]
                move = max(-g[c] / (slow * largest), least) if g[c] > zero else zero
            if move != zero:
                step[at[c]] += move
                for e in range(r):
                    g[e] += move * G[c, e]


def _rows(
    starts, columns, values, weights, other, other_T, linear, X, out, start, stop, options,
    B, v, weight, y, slope, curve, frozen, G, small, logs, exponents, at,
):  # fmt: skip
    """Newton steps for the rows start … stop of X, to `out`; returns their share of the loss.

    Row j of V has the values starts[j] … starts[j + 1], at `columns`, or at all of them where
    that is empty; `weights` likewise, ones where empty. `other` (m, r) is the other factor and
    `other_T` its transpose, flat. `linear` is Σ otherᵢ. Options: β, λ₁, λ₂, whether the term y
    of β = 1 is in `linear`, `near`, steps, sweeps, whether zeros that are not stored are
    filled in, whether the loss is wanted, and for each component whether it is held.
    """
    real = values.dtype.type
    zero, one, two = real(0), real(1), real(2)
    m, r = other.shape
    l1, l2, has_linear = real(options[1]), real(options[2]), options[3]
    n_steps, n_sweeps = int(options[5]), int(options[6])
    fill, wants_loss = options[7], options[8]
    sparse, weighted = len(columns) > 0 or (len(values) == 0), len(weights) > 0
    g, step, line = small[0], small[1], small[2]
    loss = 0.0
    for j in range(start, stop):
        x, first = out[j], starts[j]
        k = starts[j + 1] - first
        for c in range(r):
            x[c] = max(X[j, c], zero)
            line[c] = zero
        if has_linear > 0:
            for c in range(r):
                line[c] = linear[c]
        if fill > 0:
            for i in range(m):
                v[i] = 0
            for i in range(k):
                v[columns[first + i]] = values[first + i]
            k = m
            values_j, weight_j = v, weight
        else:
            values_j = values[first : first + k]
            weight_j = weights[first : first + k] if weighted else weight
        if sparse and fill == 0:
            factor, ld = B, k
            for i in range(k):
                row = other[columns[first + i]]
                for c in range(r):
                    B[c * ld + i] = row[c]
        else:
            factor, ld = other_T, m
        _combine(k, ld, factor, x, y)
        for _ in range(n_steps):
            _model(k, options, values_j, weight_j, y, slope, curve, frozen)
            free = 0
            for c in range(r):
                if options[9 + c] > 0:
                    continue
                b, total = factor[c * ld : c * ld + k], line[c] + l1 + l2 * x[c]
                for i in range(k):
                    total += b[i] * slope[i]
                if x[c] > zero or total < zero:  # others stay at zero
                    at[free], g[free] = c, total
                    free += 1
            _hessian(k, ld, factor, curve, slope, G, at, free)
            for c in range(free):
                G[c, c] += l2
            _descend(n_sweeps, G, g, x, step, at, free)
            _combine(k, ld, factor, step, curve)  # the way y goes
            fixed, bend = zero, zero
            for c in range(r):
                fixed += step[c] * (line[c] + l1 + l2 * x[c])
                bend += l2 * step[c] * step[c]
            t = one
            if options[0] != 2:  # where the model is no model
                end = fixed + bend
                end += _slopes(k, options, values_j, weight_j, y, curve, frozen, slope, one)
                here = one / two
                for _try in range(12):  # a convex function falls to t if its mean slope does
                    if end <= zero:
                        break
                    now = fixed + here * bend
                    now += _slopes(k, options, values_j, weight_j, y, curve, frozen, slope, here)
                    if now + end <= zero:
                        end = -one
                        break
                    t, end, here = here, now, here / two
                t = t if end <= zero else zero
            for c in range(r):
                x[c] = max(x[c] + t * step[c], zero)
            for i in range(k):
                y[i] = max(y[i] + t * curve[i], zero)
        if wants_loss > 0:
            for c in range(r):
                loss += x[c] * (line[c] + l1 + l2 / 2 * x[c])
            loss += _divergence(k, options, values_j, weight_j, y, logs, exponents)
    return loss


@once
def newton(dtype: Any) -> Callable[..., float]:
    """The compiled half-step for arrays of float32 or float64: `_rows`."""
    real = numba.from_dtype(dtype)
    matrix, vector, count = array(real), array(real, 1), types.int64
    double, whole = array(types.float64, 1), array(types.int64, 1)
    signature = types.float64(
        whole, array(types.int32, 1), vector, vector, matrix, vector, vector,
        matrix, matrix, count, count, double, *[vector] * 7, matrix, matrix, double, whole, whole,
    )  # fmt: skip
    return jit(signature)(_rows)
