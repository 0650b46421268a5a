"""HALS sweeps, and whole iterations of extrapolated HALS, compiled for the CPU by numba.

Rows are independent in a half-step: they lie side by side in the lanes of the processor, so factors
are (r, m) and (r, n) here. Imported by `kernels.compiled()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from factormer.kernels import products, tiles
from factormer.kernels.compile import address, array, calling, jit, once
from factormer.kernels.restart import AS_TUPLE, PROGRESS, RATES, as_tuple, extrapolate, judged
from factormer.kernels.tiles import lanes

LANES = 128  # rows that a sweep works on at once; they stay in the cache for all sweeps
_two_wide, _one_wide = (tiles.descent(rows, 4, LANES) for rows in (2, 1))
_two, _one = (tiles.descent(rows, 1, LANES) for rows in (2, 1))
_begin, _end = tiles.begin(LANES), tiles.end(LANES)


class Scratch(NamedTuple):
    """What sweeps work with: G scaled; and lines of F scaled, of X, and of components in hand."""

    g: np.ndarray
    lines: np.ndarray

    @staticmethod
    def of(g: np.ndarray) -> Scratch:
        """With g from `scaled`, or room for it, and lines of its precision, all zero."""
        even, padded = len(g), g.shape[1] - 2
        return Scratch(g, np.zeros((even + padded) * LANES, g.dtype))


def unscaled(r: int) -> np.ndarray:
    """Room for G scaled: components are made two at a time, of four at a time, the rest is zero."""
    return np.zeros(((r + 1) // 2 * 2, (r + 3) // 4 * 4 + 2))


def _scale(G, flat, g):
    """The g of a `Scratch`: rows of G over their diagonal, and what else sweeps with G need.

    Components whose curvature G_cc is at most `flat` times the largest stay as they are.
    """
    (_, wide), r, largest = g.shape, len(G), 0.0
    padded = wide - 2
    for c in range(r):
        if G[c, c] > largest:
            largest = G[c, c]
    for c in range(r):
        G_c, g_c = G[c], g[c]
        scale = 1 / G_c[c] if G_c[c] > flat * largest else 0.0
        if scale == np.inf:  # of a subnormal number
            scale = 0.0
        for k in range(r):
            g_c[k] = scale * G_c[k]
        g_c[c], g_c[padded] = -1.0 if scale == 0 else 0.0, scale
    for c in range(1, r, 2):  # the first of a pair is known only when the second is made
        g[c, padded + 1], g[c, c - 1] = g[c, c - 1], 0.0


def _sweeps(Ft, Xt, out, n_sweeps, start, stop, g, f):
    """From Xt (r, n), n_sweeps of coordinate descent on ½⟨X G, X⟩ − ⟨F, X⟩ over X ≥ 0, to `out`.

    For the rows start … stop of X, that is these columns of Xt; its negative entries count as 0.
    The twin is `solvers.hals.sweep`; the last two arguments are a `Scratch` that `_scale` has been
    at. Two components are made in one reading of the others.
    """
    (even, wide), r, zero, lane = g.shape, len(Xt), g.dtype.type(0), lanes(g)
    x, even_r, size = f[even * LANES :], r // 2 * 2, g.itemsize
    for first in range(start, stop, LANES):
        width = stop - first if stop - first < LANES else LANES
        for c in range(r):
            F_c, X_c, scale = Ft[c, first:], Xt[c, first:], g[c, wide - 2]
            f_c, x_c = f[c * LANES :], x[c * LANES :]
            j = 0
            if F_c.strides[0] == size and X_c.strides[0] == size:
                while j + lane <= width:
                    _begin(Ft, Xt, c, first + j, f, x, j, scale)
                    j += lane
            while j < width:
                f_c[j] = F_c[j] * scale
                x_c[j] = zero if X_c[j] < zero else X_c[j]
                j += 1
        for _ in range(n_sweeps):
            for c in range(0, even_r, 2):
                j = 0
                while j + 3 * lane < width:
                    _two_wide(f, x, g, c, j, r)
                    j += 4 * lane
                while j < width:
                    _two(f, x, g, c, j, r)
                    j += lane
            if even_r < r:
                j = 0
                while j + 3 * lane < width:
                    _one_wide(f, x, g, even_r, j, r)
                    j += 4 * lane
                while j < width:
                    _one(f, x, g, even_r, j, r)
                    j += lane
        for c in range(r):
            out_c, x_c, j = out[c, first:], x[c * LANES :], 0
            if out_c.strides[0] == size:
                while j + lane <= width:
                    _end(x, j, out, c, first + j)
                    j += lane
            while j < width:
                out_c[j] = x_c[j]
                j += 1


_matrix, _vector, _count = array(types.float64), array(types.float64, 1), types.int64
_scale_of = types.void(_matrix, types.float64, _matrix)


def sweeps_of(dtype: Any) -> Any:
    """The signature of `sweeps` in this precision."""
    real = numba.from_dtype(dtype)
    any_order = array(real, layout="A")
    return types.void(*[any_order] * 3, *[_count] * 3, array(real), array(real, 1))


@once
def _scaling() -> Callable[..., None]:
    return jit(_scale_of)(_scale)


@once
def sweeps(dtype: Any) -> Callable[..., None]:
    """The compiled sweeps for arrays of float32 or float64, in any memory order."""
    _scaling()  # whoever sweeps scales before
    return jit(sweeps_of(dtype))(_sweeps)


def scaled(G: np.ndarray, flat: float) -> np.ndarray:
    """What `sweeps` take in place of G (r, r), of its precision: `_scale`."""
    g = unscaled(len(G))
    _scaling()(np.ascontiguousarray(G, g.dtype), flat, g)
    return g.astype(G.dtype, copy=False)


_gram_of = types.void(_matrix, _count, _count, _matrix)
_multiply_of = types.void(_matrix, _count, _matrix, _matrix, _count)
gram_at, multiply_at, scale_at = calling(_gram_of), calling(_multiply_of), calling(_scale_of)
sweep_at = calling(sweeps_of(np.dtype("f8")), sweeps_of(np.dtype("f4")))


class Parts(NamedTuple):
    """Where the parts of an iteration stand in memory: see `kernels.compile`."""

    gram: int
    multiply: int
    scale: int
    sweep: int


@once
def _functions() -> list[Any]:
    gram, multiply = (
        jit(_gram_of, inner=True)(products.gram),
        jit(_multiply_of, inner=True)(products.multiply),
    )
    return [gram, multiply, _scaling(), sweeps(np.dtype(float))]


@once
def parts() -> Parts:
    """The parts of an iteration, compiled."""
    return Parts(*(address(function) for function in _functions()))


class Data(NamedTuple):
    """V (m, n) and its transpose; or for a matrix U Zᵀ, its right parts Zᵀ and Uᵀ, and U and Z.

    `short` (r, p) is room for UᵀW, and empty, as U and Z are, where V is itself.
    """

    V: np.ndarray
    VT: np.ndarray
    U: np.ndarray
    Z: np.ndarray
    short: np.ndarray


class Points(NamedTuple):
    """[Wᵀ, Hᵀ] (r, m + n) by rows: the point kept, the proposal, and what an iteration makes.

    That is the new point, [(VH)ᵀ, (VᵀW)ᵀ], and WᵀW and HᵀH (2, r, r).
    """

    kept: np.ndarray
    proposed: np.ndarray
    new: np.ndarray
    products: np.ndarray
    grams: np.ndarray


class Options(NamedTuple):
    """Sweeps for H and for W; ‖V‖², the share of it that has digits enough, and what is flat."""

    sweeps_h: int
    sweeps_w: int
    sq_norm: float
    resolved: float
    flat: float


@jit(inner=True)
def _half_step(parts, data, points, options, scratch, m, side):
    """The new H from the W proposed (side 0), or the new W from the new H (side 1)."""
    proposed, new, both = points.proposed, points.new, points.new.shape[1]
    given, first, last = (proposed, 0, m) if side == 0 else (new, m, both)
    start, stop = (m, both) if side == 0 else (0, m)
    G, right = points.grams[1], data.V if side == 0 else data.VT
    gram_at(parts.gram, (given, first, last, G))
    if len(data.short):
        multiply_at(parts.multiply, (given, first, data.U if side == 0 else data.Z, data.short, 0))
        multiply_at(parts.multiply, (data.short, 0, right, points.products, start))
    else:
        multiply_at(parts.multiply, (given, first, right, points.products, start))
    scale_at(parts.scale, (G, options.flat, scratch.g))
    n_sweeps = options.sweeps_h if side == 0 else options.sweeps_w
    rows = (points.products, proposed, new, n_sweeps, start, stop)
    sweep_at(parts.sweep, (*rows, scratch.g, scratch.lines))


@jit(inner=True)
def _iteration(parts, data, points, options, scratch, m):
    """One iteration of HALS from the proposal to the new point; returns the squared error."""
    for side in range(2):  # H from the W proposed, then W from that H
        _half_step(parts, data, points, options, scratch, m, side)
    new, F, HtH, WtW, error = points.new, points.products, points.grams[1], points.grams[0], 0.0
    gram_at(parts.gram, (new, 0, m, WtW))
    error += options.sq_norm
    for c in range(len(new)):
        for j in range(m):
            error -= 2 * F[c, j] * new[c, j]
        for k in range(len(new)):
            error += HtH[c, k] * WtW[c, k]
    return error


def _iterations(parts, data, points, options, rates, progress, errors, scratch):
    """HALS extrapolated with restart, in place, as often as `errors` has room for.

    Ends early where the error leaves too few digits of ‖V‖². Returns the iterations made, and how
    it stands after them.
    """
    m = len(data.U) if len(data.short) else len(data.V)
    for t in range(len(errors)):
        error = _iteration(parts, data, points, options, scratch, m)
        if error < options.resolved * options.sq_norm:
            return t, as_tuple(progress)
        after = judged(progress, error, rates)
        extrapolate(points.kept, points.proposed, points.new, progress.beta, after.plain)
        progress, errors[t] = after, after.error
    return len(errors), as_tuple(progress)


PARTS = types.NamedUniTuple(_count, 4, Parts)
DATA = types.NamedUniTuple(_matrix, 5, Data)
POINTS = types.NamedTuple([*[_matrix] * 4, array(types.float64, 3)], Points)
OPTIONS = types.NamedTuple([_count] * 2 + [types.float64] * 3, Options)
SCRATCH = types.NamedTuple([_matrix, _vector], Scratch)


@once
def extrapolated() -> Callable[..., tuple[int, tuple[float, float, float, float, bool]]]:
    """The compiled iterations, in float64: `_iterations`."""
    result = types.Tuple([_count, AS_TUPLE])
    return jit(result(PARTS, DATA, POINTS, OPTIONS, RATES, PROGRESS, _vector, SCRATCH))(_iterations)


def _slope(parts, data, points, m):
    """The norm of the gradient at points.new, where an entry is 0 of its negative part alone.

    The twin is `Problem.stationarity` in torch.
    """
    x, F, G, both, total = points.new, points.products, points.grams[0], points.new.shape[1], 0.0
    for side in range(2):  # by H, which W gives, and by W
        first, last, start, stop = (0, m, m, both) if side == 0 else (m, both, 0, m)
        right = data.V if side == 0 else data.VT
        gram_at(parts.gram, (x, first, last, G))
        if len(data.short):
            multiply_at(parts.multiply, (x, first, data.U if side == 0 else data.Z, data.short, 0))
            multiply_at(parts.multiply, (data.short, 0, right, F, start))
        else:
            multiply_at(parts.multiply, (x, first, right, F, start))
        for c in range(len(x)):
            F_c, x_c = F[c, start:stop], x[c, start:stop]
            for k in range(len(x)):
                g, x_k = G[c, k], x[k, start:stop]
                for j in range(stop - start):
                    F_c[j] -= g * x_k[j]
            for j in range(stop - start):
                if x_c[j] > 0 or F_c[j] > 0:
                    total += F_c[j] * F_c[j]
    return total**0.5


@once
def slope() -> Callable[..., float]:
    """The compiled norm of the projected gradient, in float64: `_slope`."""
    return jit(types.float64(PARTS, DATA, POINTS, _count))(_slope)
