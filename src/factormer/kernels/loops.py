"""HALS sweeps, and whole iterations of extrapolated HALS, compiled for the CPU by numba.

Rows are independent in a half-step: they lie side by side in the lanes of the processor, so factors
are (r, m) and (r, n) here. Compilation is waited for in every new environment: so there is one
signature for each function and precision, and no memory is allocated within. Other processes take
what the first one compiled from the disk, but never a function that closes over another compiled
one, and a stale one if what it calls is in another file. So what a loop calls is a global of its
module. Imported by `kernels.compiled()` alone, where numba is present.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

_LANES = 128  # rows that a sweep works on at once; they stay in the cache for all sweeps


def once(make: Callable[..., Any]) -> Callable[..., Any]:
    """What `make` makes, once for each argument, whichever threads ask for it."""
    lock, made = RLock(), {}

    @wraps(make)
    def get(*arguments: Any) -> Any:
        with lock:
            if arguments not in made:
                made[arguments] = make(*arguments)
            return made[arguments]

    return get


def jit(
    signature: Any = None, *, inner: bool = False, inline: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile at once for a signature, or without one for whatever types a compiled caller has.

    `inner` functions cannot be called from Python; those to `inline` are compiled with their caller
    alone. NaN and infinity keep their meaning.
    """
    decorate = numba.njit(  # pyright: ignore[reportCallIssue]
        *([] if signature is None else [signature]),
        nogil=True,
        cache=True,
        error_model="numpy",
        fastmath={"contract", "reassoc", "nsz"},
        no_cfunc_wrapper=True,
        no_cpython_wrapper=inner,
        inline="always" if inline else "never",
    )
    return lambda function: decorate(inspect.unwrap(function))


def array(dtype: Any, dim: int = 2, layout: str = "C") -> Any:
    """The type of an array in a signature."""
    return types.Array(dtype, dim, layout)


class Scratch(NamedTuple):
    """Room for the rows in hand: G scaled, F scaled, X with rows of zeros, and one component."""

    g: np.ndarray
    f: np.ndarray
    x: np.ndarray
    best: np.ndarray

    @staticmethod
    def of(r: int, dtype: Any) -> Scratch:
        """For rank r; components are taken four at a time, so x has rows for a multiple of four."""
        padded = (r + 3) // 4 * 4
        shapes = ((r, padded + 1), (r, _LANES), (padded, _LANES), (_LANES,))
        return Scratch(*(np.zeros(shape, dtype) for shape in shapes))


def _sweeps(G, Ft, Xt, out, n_sweeps, start, stop, flat, g, f, x, best):
    """From Xt (r, n), n_sweeps of coordinate descent on ½⟨X G, X⟩ − ⟨F, X⟩ over X ≥ 0, to `out`.

    For the rows start … stop of X, that is these columns of Xt; its negative entries count as 0.
    Components whose curvature G_cc is at most `flat` beside the largest are left as they are. The
    twin is `solvers.hals.sweep`; the last four arguments are a `Scratch`.
    """
    r, padded = len(Xt), len(x)
    largest = G[0, 0]
    for c in range(r):
        largest = max(largest, G[c, c])
    for c in range(r):
        scale = 1 / G[c, c] if G[c, c] > flat * largest else 0 * largest
        for k in range(r):
            g[c, k] = scale * G[c, k]
        g[c, c] = 0
        g[c, padded] = scale
    for first in range(start, stop, _LANES):
        width = min(_LANES, stop - first)
        lanes = (width + 7) // 8 * 8
        for c in range(r):
            F_c, X_c, f_c, x_c, scale = Ft[c, first:], Xt[c, first:], f[c], x[c], g[c, padded]
            for j in range(width):
                f_c[j] = F_c[j] * scale
                x_c[j] = max(X_c[j], 0)
        for _ in range(n_sweeps):
            for c in range(r):
                if g[c, padded] == 0:
                    continue
                f_c, g_c, x_c = f[c], g[c], x[c]
                for k in range(0, padded, 4):
                    g0, g1, g2, g3 = g_c[k], g_c[k + 1], g_c[k + 2], g_c[k + 3]
                    x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
                    if k == 0:  # a pass less than to copy f_c first
                        for j in range(lanes):
                            best[j] = f_c[j] - (x0[j] * g0 + x1[j] * g1) - (x2[j] * g2 + x3[j] * g3)
                    else:
                        for j in range(lanes):
                            best[j] -= (x0[j] * g0 + x1[j] * g1) + (x2[j] * g2 + x3[j] * g3)
                for j in range(lanes):
                    x_c[j] = max(best[j], 0)
        for c in range(r):
            out_c, x_c = out[c, first:], x[c]
            for j in range(width):
                out_c[j] = x_c[j]


@once
def sweeps(dtype: Any) -> Callable[..., None]:
    """The compiled sweeps for arrays of float32 or float64, in any memory order."""
    real = numba.from_dtype(dtype)
    anyhow = array(real, layout="A")
    room = (array(real), array(real), array(real), array(real, 1))
    count = types.int64
    return jit(types.void(array(real), *[anyhow] * 3, *[count] * 3, real, *room))(_sweeps)


_sweep = jit(inner=True)(_sweeps)


@jit(inner=True)
def _multiply(A, a, B, out, o):
    """Out = A B for B (k, n), the columns a … a + k of A, and the columns o … o + n of out.

    Two rows of A at a time, so that what is read of B serves both; the last of an odd number of
    rows is done with the one before it once more.
    """
    (k, n), r = B.shape, len(A)
    even = k // 4 * 4
    for pair in range(0, r, 2):
        c, d = max(min(pair, r - 2), 0), min(pair + 1, r - 1)
        v, w = A[c, a : a + k], A[d, a : a + k]
        out_c, out_d = out[c, o : o + n], out[d, o : o + n]
        for j in range(n):
            out_c[j] = out_d[j] = 0
        for i in range(0, even, 4):
            B0, B1, B2, B3 = B[i], B[i + 1], B[i + 2], B[i + 3]
            v0, v1, v2, v3 = v[i], v[i + 1], v[i + 2], v[i + 3]
            w0, w1, w2, w3 = w[i], w[i + 1], w[i + 2], w[i + 3]
            for j in range(n):
                p = out_c[j] + ((v0 * B0[j] + v1 * B1[j]) + (v2 * B2[j] + v3 * B3[j]))
                q = out_d[j] + ((w0 * B0[j] + w1 * B1[j]) + (w2 * B2[j] + w3 * B3[j]))
                out_c[j], out_d[j] = p, q
        for i in range(even, k):
            v0, w0, B0 = v[i], w[i], B[i]
            for j in range(n):
                p, q = out_c[j] + v0 * B0[j], out_d[j] + w0 * B0[j]
                out_c[j], out_d[j] = p, q


@jit(inner=True)
def _gram(A, start, stop, out):
    """Out = A Aᵀ for these columns of A."""
    for c in range(len(A)):
        for k in range(c + 1):
            p, q, total = A[c, start:stop], A[k, start:stop], 0.0
            for j in range(stop - start):
                total += p[j] * q[j]
            out[c, k] = out[k, c] = total


@jit(inner=True, inline=True)
def iteration(V, VT, U, Z, short, m, y, new, F, G, G_W, n_sweeps, sq_norm, flat, g, f, X, best):
    """One iteration of HALS from y to `new`; G becomes HᵀH and G_W WᵀW; returns the squared error.

    y, new and F hold [Wᵀ, Hᵀ] (r, m + n): the point before, the one after, and [(VH)ᵀ, (VᵀW)ᵀ]. V
    is V (m, n) and VT its transpose (n, m); or, for a matrix U Zᵀ, they are Zᵀ and Uᵀ, and `short`
    (r, p) is room for UᵀW.
    """
    (r, both), start, stop = y.shape, 0, m
    for side in range(2):  # H from the W before, then W from that H
        given, begin, end = (y, 0, m) if side == 0 else (new, m, both)
        start, stop = (m, both) if side == 0 else (0, m)
        _gram(given, begin, end, G)
        for link in range(0 if len(short) else 1, 2):
            right = (U if side == 0 else Z) if link == 0 else (V if side == 0 else VT)
            left, first = (given, begin) if link == 0 or not len(short) else (short, 0)
            out, there = (short, 0) if link == 0 else (F, start)
            _multiply(left, first, right, out, there)
        _sweep(G, F, y, new, n_sweeps[side], start, stop, flat, g, f, X, best)
    _gram(new, start, stop, G_W)
    error = sq_norm
    for c in range(r):
        for j in range(m):
            error -= 2 * F[c, j] * new[c, j]
        for k in range(r):
            error += G[c, k] * G_W[c, k]
    return error


def _iterations(
    V, VT, U, Z, short, m, x, y, new, F, G, G_W, n_sweeps, options, state, errors, g, f, X, best
):
    """HALS extrapolated with restart, in place, as often as `errors` has room for.

    x is the point kept and y the proposal; for the others see `iteration`. Ends early where the
    error leaves too few digits of ‖V‖²; returns the iterations made.
    """
    eta, gamma, gamma_bound = options[0], options[1], options[2]
    sq_norm, resolved, flat = options[3], options[4], options[5]
    for t in range(len(errors)):
        error = iteration(
            V, VT, U, Z, short, m, y, new, F, G, G_W, n_sweeps, sq_norm, flat, g, f, X, best
        )  # fmt: skip
        if error < resolved * sq_norm:
            return t
        beta, last, bound = state[0], state[1], state[2]
        rose = not (error <= state[3])
        kept = rose and not (state[4] > 0 and error < np.inf)
        if not kept:
            state[3] = error
        for c in range(len(x)):
            for j in range(x.shape[1]):
                here = x[c, j] if kept else new[c, j]
                y[c, j] = here + beta * (here - x[c, j])
                x[c, j] = here
        state[0] = beta / eta if rose else min(bound, gamma * beta)
        state[1] = beta
        state[2] = last if rose else min(1.0, gamma_bound * bound)
        state[4] = kept
        errors[t] = state[3]
    return len(errors)


@once
def extrapolated() -> Callable[..., int]:
    """The compiled iterations, in float64: `_iterations`."""
    matrix, vector, count = array(types.float64), array(types.float64, 1), types.int64
    signature = count(
        *[matrix] * 5, count, *[matrix] * 6, array(count, 1), *[vector] * 3, *[matrix] * 3, vector
    )
    return jit(signature)(_iterations)
