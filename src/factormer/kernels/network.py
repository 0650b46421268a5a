"""The any-rank accelerator compiled for the CPU by numba: its passes and its network.

Factors are (r, n) here, as in `kernels.loops`. All but the passes is in float64. Imported by
`kernels.any_rank()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from factormer.kernels.compile import array, jit, once

N_PRODUCTS, N_FEATURES, N_SHARED, N_OUT = 13, 15, 6, 6
_FLOOR = 1e-14


def _gather(X, before, y, P, T, U, first, last, sums, start, stop):
    """Inner products of the components start … stop, over the columns first … last.

    The twin is `accelerate.moves.products`; the order of the products is that of `Pooled`.
    """
    n = last - first
    for c in range(start, stop):
        x, b, a = X[c, first:last], before[c, first:last], y[c, first:last]
        p, t, u = P[c, first:last], T[c, first:last], U[c, first:last]
        XX = XD = DD = DP = PP = SD = SS = ST = SU = TT = TU = UU = X[0, 0] * 0
        for j in range(n):
            D, S = x[j] - b[j], x[j] - a[j]
            XX += x[j] * x[j]
            XD += x[j] * D
            DD += D * D
            DP += D * p[j]
            PP += p[j] * p[j]
            SD += S * D
            SS += S * S
            ST += S * t[j]
            SU += S * u[j]
            TT += t[j] * t[j]
            TU += t[j] * u[j]
            UU += u[j] * u[j]
        small, zeros = 1e-8 * np.sqrt(XX), 0
        for j in range(n):
            zeros += x[j] <= small
        found = (XX, XD, DD, DP, PP, SD, SS, ST, SU, TT, TU, UU)
        for k in range(12):
            sums[k, c] = found[k]
        sums[12, c] = zeros / n


@once
def gather(dtype: Any) -> Callable[..., None]:
    """The compiled inner products, for factors of float32 or float64."""
    factor, count = array(numba.from_dtype(dtype)), types.int64
    sums = array(types.float64)
    return jit(types.void(*[factor] * 6, count, count, sums, count, count))(_gather)


@once
def combine(dtype: Any) -> Callable[..., None]:
    """The compiled proposal, for factors of float32 or float64."""
    real = numba.from_dtype(dtype)
    factor, count = array(real), types.int64

    @jit(types.void(*[factor] * 8, count, count))
    def kernel(X, before, y, P, proposed, D, S, amounts, start, stop):
        """D = X − before, S = X − y and X + d D + p P + s S, for the components start … stop."""
        for c in range(start, stop):
            d, p, s = amounts[0, c], amounts[1, c], amounts[2, c]
            x, b, a, older = X[c], before[c], y[c], P[c]
            out, last, own = proposed[c], D[c], S[c]
            for j in range(X.shape[1]):
                last[j] = x[j] - b[j]
                own[j] = x[j] - a[j]
                out[j] = x[j] + (d * last[j] + p * older[j] + s * own[j])

    return kernel


@jit(inner=True)
def _depth_two(SS, TT, UU, ST, SU, TU):
    floor = 1e-6 * (SS + TT + UU) + 1e-30
    first, second = 1.003 * (SS + TT - 2 * ST) + floor, 1.003 * (SS + UU - 2 * SU) + floor
    both = SS - SU - ST + TU
    determinant = max(first * second - both * both, 1e-30)
    a = ((SS - ST) * second - (SS - SU) * both) / determinant
    b = ((SS - SU) * first - (SS - ST) * both) / determinant
    return _bounded(-(a + b), 20.0), _bounded(-b, 20.0)


@jit(inner=True)
def _bounded(x, bound):
    return min(max(x, -bound), bound) if x == x else 0.0


@jit(inner=True)
def _cosine(AB, AA, BB):
    return AB / np.sqrt(AA * BB + _FLOOR**2)


@jit(inner=True)
def _log_ratio(A, B):
    return _bounded(A - B, 12.0) / 4


@jit(inner=True)
def _linear(rows, n_in, weights, at, n_out, bias, out):
    """The rows times a matrix (n_out, n_in) of `weights`, with what follows it as `bias`."""
    for c in range(len(rows)):
        for o in range(n_out):
            total = weights[at + n_out * n_in + o] if bias else 0.0
            w = weights[at + o * n_in : at + (o + 1) * n_in]
            for i in range(n_in):
                total += rows[c, i] * w[i]
            out[c, o] = total
    return at + n_out * n_in + (n_out if bias else 0)


@jit(inner=True)
def _gate(x):
    return x * (0.5 + 0.5 * x / (1 + abs(x)))


@jit(inner=True)
def _features(q, shares, f, at, steps):
    """The features of one factor into the columns from `at` of f (r, ·); q (13, r) is scaled."""
    r, largest = q.shape[1], 0.0
    for c in range(r):
        largest = max(largest, q[0, c])
    SS = TT = UU = ST = SU = TU = overall = 0.0
    for c in range(r):
        moved = q[2, c] + q[4, c] + q[6, c] + q[9, c] + q[11, c]
        norm = max(max(q[0, c], 1e-16 * largest), 1e-6 * moved)
        for i in range(12):
            q[i, c] /= norm if norm > 0 else 1.0
        share = shares[c]
        overall += share * q[2, c]
        SS, TT, UU = SS + share * q[6, c], TT + share * q[9, c], UU + share * q[11, c]
        ST, SU, TU = ST + share * q[7, c], SU + share * q[8, c], TU + share * q[10, c]
    D_all, P_all = _depth_two(SS, TT, UU, ST, SU, TU)
    for c in range(r):
        XD, DD, DP, PP, SD = q[1, c], q[2, c], q[3, c], q[4, c], q[5, c]
        SS, ST, SU, TT, TU, UU = q[6, c], q[7, c], q[8, c], q[9, c], q[10, c], q[11, c]
        D_one, P_one = _depth_two(SS, TT, UU, ST, SU, TU)
        log_D, log_S, log_T = np.log(DD + _FLOOR), np.log(SS + _FLOOR), np.log(TT + _FLOOR)
        f[c, at], f[c, at + 1] = _cosine(XD, 1.0, DD), _cosine(SD, SS, DD)
        f[c, at + 2], f[c, at + 3] = _cosine(DP, DD, PP), _cosine(ST, SS, TT)
        f[c, at + 4], f[c, at + 5] = log_D / 8 + 1, np.log(overall + _FLOOR) / 8 + 1
        f[c, at + 6] = _log_ratio(log_D, np.log(PP + _FLOOR))
        f[c, at + 7], f[c, at + 8] = _log_ratio(log_S, log_D), _log_ratio(log_S, log_T)
        f[c, at + 9], f[c, at + 10] = _log_ratio(log_T, np.log(UU + _FLOOR)), q[12, c]
        steps[c, 0], steps[c, 1], steps[c, 2], steps[c, 3] = D_all, P_all, D_one, P_one
        for i in range(4):
            f[c, at + 11 + i] = np.arcsinh(steps[c, i]) / 2


@jit(inner=True)
def _shared(sums, progress, f, at, shares):
    """The features that factors share into f, and each component's share of the signal."""
    r, whole, most, mean = len(f), 0.0, 0.0, 0.0
    for c in range(r):
        shares[c] = sums[0, 0, c] * sums[1, 0, c]
        whole, most = whole + shares[c], max(most, shares[c])
    for c in range(r):
        f[c, at] = np.log(max(shares[c], 1e-12 * most)) / 2
        mean += f[c, at] / r
        shares[c] /= whole if whole > 0 else 1.0
    for c in range(r):
        f[c, at] = _bounded(f[c, at] - mean, 6.0) / 2
        f[c, at + 1], f[c, at + 2] = np.log1p(progress[1]) / 2, np.log1p(progress[2]) / 3
        f[c, at + 3], f[c, at + 4], f[c, at + 5] = np.log(r) / 3, progress[3] / 3, progress[0]


@jit(inner=True)
def _edges(gram, edges):
    """Cosines between columns of W, of H, and their products, each next to the sum of its row."""
    r = gram.shape[1]
    for side in range(2):
        G, C, largest = gram[side], edges[side], 0.0
        for c in range(r):
            largest = max(largest, G[c, c])
        for c in range(r):
            for e in range(r):
                norms = max(G[c, c], 1e-16 * largest) * max(G[e, e], 1e-16 * largest)
                C[c, e] = G[c, e] / np.sqrt(norms) if c != e and norms > 0 else 0.0
    for c in range(r):
        for e in range(r):
            edges[2, c, e] = edges[0, c, e] * edges[1, c, e]
    for i in range(3):
        for c in range(r):
            total = 1.0
            for e in range(r):
                total += abs(edges[i, c, e])
            for e in range(r):
                edges[i, c, e] /= total


def _mix(sums, gram, progress, sizes, weights, f, h, message, edges, steps, amounts):
    """Amounts (3, 2, r) of D, P and S, from products (2, 13, r) and Gram matrices (2, r, r).

    `progress` is β, iterations since a refusal and in all, refusals, and how many of those are
    borne with. The others but `weights` are room; `sums` is used up. The twins are
    `AnyRankNetwork.forward` and `AnyRank.amounts`.
    """
    r, d, k, n_layers = sums.shape[2], sizes[0], sizes[1], sizes[2]
    n_in, shares = 2 * N_FEATURES + N_SHARED, amounts[2, 1]
    _shared(sums, progress, f, 2 * N_FEATURES, shares)
    for side in range(2):
        _features(sums[side], shares, f, side * N_FEATURES, steps[side])
    for c in range(r):
        for i in range(n_in):
            f[c, i] = _bounded(f[c, i], 10.0)
    _edges(gram, edges)
    at = _linear(f, n_in, weights, 0, d, True, h)
    for c in range(r):
        for i in range(d):
            h[c, i] = _gate(h[c, i])
    for _ in range(n_layers):
        at = _linear(h, d, weights, at, k, False, message)
        for c in range(r):
            for i in range(d):
                f[c, i] = h[c, i]
            for i in range(4 * k):
                f[c, d + i] = 0
            for e in range(r):
                for i in range(k):
                    f[c, d + i] += message[e, i] / r
                    f[c, d + k + i] += edges[0, c, e] * message[e, i]
                    f[c, d + 2 * k + i] += edges[1, c, e] * message[e, i]
                    f[c, d + 3 * k + i] += edges[2, c, e] * message[e, i]
        for c in range(r):  # row by row, since the room for what a layer gives is a row of f
            row = f[c, d + 4 * k :]
            _linear(f[c : c + 1], d + 4 * k, weights, at, d, True, row.reshape(1, len(row)))
            for i in range(d):
                h[c, i] += _gate(row[i])
        at += d * (d + 4 * k) + d
    _linear(h, d, weights, at, 2 * N_OUT, True, f)
    beta, trust = progress[0], progress[3] < progress[4]
    for side in range(2):
        for c in range(r):
            o, a = f[c, side * N_OUT :], steps[side, c]
            for i in range(N_OUT):
                o[i] = _bounded(o[i], 4.0) * trust
            amounts[0, side, c] = beta + beta * o[0] + o[1] + o[4] * a[0] + o[5] * a[2]
            amounts[1, side, c] = o[2] + o[4] * a[1] + o[5] * a[3]
            amounts[2, side, c] = o[3]


_matrix, _vector, _whole = array(types.float64), array(types.float64, 1), array(types.int64, 1)
_cube = array(types.float64, 3)


@once
def mix() -> Callable[..., None]:
    """The compiled network."""
    room = (_matrix, _matrix, _matrix, _cube, _cube, _cube)
    return jit(types.void(_cube, _cube, _vector, _whole, _vector, *room))(_mix)


def room(r: int, sizes: tuple[int, int, int]) -> list[np.ndarray]:
    """Room for a network of that width, messages and layers at rank r, the amounts last."""
    d, k, _ = sizes
    wide = max(2 * N_FEATURES + N_SHARED, 2 * d + 4 * k, 2 * N_OUT)
    shapes = ((r, wide), (r, d), (r, k), (3, r, r), (2, r, 4), (3, 2, r))
    return [np.zeros(shape) for shape in shapes]
