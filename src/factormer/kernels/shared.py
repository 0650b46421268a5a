"""Half-steps of many factorizations of one V, whose products with V are given, compiled by numba.

Factors lie side by side as in `kernels.loops`, those of one problem after those of another: problem
k of rank r has the rows r·k … r·(k + 1). The twin is `accelerate.her.HER.step`. Imported by
`kernels.shared_products()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from factormer.kernels import loops
from factormer.kernels.compile import address, array, jit, once
from factormer.kernels.loops import scale_at, sweep_at
from factormer.kernels.restart import RATES, Progress, extrapolate, judged
from factormer.kernels.whole import settle

_CHUNK = 512  # products that are added in their own precision, before all are in float64

# Columns of `progress`, a row for each problem; and what stands in the last.
BETA, LAST, BOUND, ERROR, PLAIN, STATE = range(6)
RUNNING, UNRESOLVED = 0.0, 1.0  # the latter: errors are too small for these iterations


class Points(NamedTuple):
    """[Wᵀ, Hᵀ] (problems·r, m + n) of each problem: as in `loops.Points`, without Gram matrices."""

    kept: np.ndarray
    proposed: np.ndarray
    new: np.ndarray
    products: np.ndarray


class Sizes(NamedTuple):
    """Rank, rows of V, ‖V‖², and the shares of it that errors need for their digits, and round."""

    r: int
    m: int
    sq_norm: float
    resolved: float
    rounding: float


class Sweeps(NamedTuple):
    """Where `scale` and `sweeps` stand in memory; the sweeps of H and of W; what is flat."""

    scale: int
    sweep: int
    of_h: int
    of_w: int
    flat: float


class Scratch(NamedTuple):
    """HᵀH and WᵀW (2, r, r), and what sweeps work with."""

    grams: np.ndarray
    wide: np.ndarray
    g: np.ndarray
    lines: np.ndarray

    @staticmethod
    def of(r: int, dtype: Any) -> Scratch:
        """For problems of rank r; sweeps are made in this precision."""
        wide = loops.unscaled(r)
        return Scratch(np.empty((2, r, r)), wide, *loops.Scratch.of(wide.astype(dtype)))


@jit(inner=True)
def _gram(A, start, stop, out):
    """Out = A Aᵀ for these columns of A, in float64."""
    for c in range(len(A)):
        for k in range(c + 1):
            total = 0.0
            for first in range(start, stop, _CHUNK):
                last = min(first + _CHUNK, stop)
                p, q, part = A[c, first:last], A[k, first:last], A.dtype.type(0)
                for j in range(last - first):
                    part += p[j] * q[j]
                total += part
            out[c, k] = out[k, c] = total


@jit(inner=True)
def _inner(A, B, start, stop):
    """⟨A, B⟩ of these columns, in float64."""
    total = 0.0
    for c in range(len(A)):
        for first in range(start, stop, _CHUNK):
            last = min(first + _CHUNK, stop)
            p, q, part = A[c, first:last], B[c, first:last], A.dtype.type(0)
            for j in range(last - first):
                part += p[j] * q[j]
            total += part
    return total


@jit(inner=True)
def _error(sizes, F, x, HtH, WtW):
    """‖W Hᵀ − V‖² at x, from VH in F; makes WᵀW."""
    _gram(x, 0, sizes.m, WtW)
    error = sizes.sq_norm - 2 * _inner(F, x, 0, sizes.m)
    for c in range(sizes.r):
        for k in range(sizes.r):
            error += HtH[c, k] * WtW[c, k]
    return error


def _half_steps(points, progress, sizes, sweeps, rates, scratch, side, first, last):
    """Make H of the problems first … last from the W proposed (side 0), or W from that H (side 1).

    Products with the factor given are in points.products. Side 1 ends an iteration: each point is
    judged, and the next proposed.
    """
    r, m, both = sizes.r, sizes.m, points.new.shape[1]
    HtH, WtW = scratch.grams[0], scratch.grams[1]
    a, b = (0, m) if side == 0 else (m, both)
    start, stop = (m, both) if side == 0 else (0, m)
    n_sweeps = sweeps.of_h if side == 0 else sweeps.of_w
    for k in range(first, last):
        if progress[k, STATE] != RUNNING:
            continue
        kept, proposed = points.kept[r * k : r * (k + 1)], points.proposed[r * k : r * (k + 1)]
        new, F = points.new[r * k : r * (k + 1)], points.products[r * k : r * (k + 1)]
        _gram(proposed if side == 0 else new, a, b, HtH)
        scale_at(sweeps.scale, (HtH, sweeps.flat, scratch.wide))
        for c in range(len(scratch.g)):
            for j in range(scratch.g.shape[1]):
                scratch.g[c, j] = scratch.wide[c, j]
        rows = (F, proposed, new, n_sweeps, start, stop)
        sweep_at(sweeps.sweep, (*rows, scratch.g, scratch.lines))
        if side == 0:
            continue
        error = _error(sizes, F, new, HtH, WtW)
        if error < sizes.resolved * sizes.sq_norm:
            progress[k, STATE] = UNRESOLVED
            continue
        before = Progress(
            progress[k, BETA], progress[k, LAST], progress[k, BOUND], progress[k, ERROR],
            progress[k, PLAIN] > 0,
        )  # fmt: skip
        if before.error < error <= before.error + sizes.rounding * sizes.sq_norm:
            error = before.error  # no rise, as far as this precision tells
        after = judged(before, error, rates)
        extrapolate(kept, proposed, new, before.beta, after.plain)
        progress[k, BETA], progress[k, LAST], progress[k, BOUND] = (
            after.beta,
            after.last,
            after.bound,
        )
        progress[k, ERROR], progress[k, PLAIN] = after.error, 1.0 if after.plain else 0.0


def _looks(points, sizes, scratch, first, last, errors, slopes, norms):
    """Write the squared errors of the points kept, their projected gradients, and their `norms`.

    (VH)ᵀ and (VᵀW)ᵀ are in points.products. The twin is `Problem.stationarity`; `rules.is_over`
    says what `norms` are.
    """
    r, m, both = sizes.r, sizes.m, points.kept.shape[1]
    HtH, WtW = scratch.grams[0], scratch.grams[1]
    for k in range(first, last):
        x, F = points.kept[r * k : r * (k + 1)], points.products[r * k : r * (k + 1)]
        _gram(x, m, both, HtH)
        errors[k] = _error(sizes, F, x, HtH, WtW)
        total = ww = hh = 0.0
        for c in range(r):
            ww += WtW[c, c]
            hh += HtH[c, c]
        norms[k] = sizes.sq_norm**0.5 * (ww**0.5 + hh**0.5)
        for side in range(2):  # by W, which H gives, and by H
            start, stop, G = (0, m, HtH) if side == 0 else (m, both, WtW)
            for at in range(start, stop, _CHUNK):
                end = min(at + _CHUNK, stop)
                total += _slope(F, x, G, at, end, scratch.lines)
        slopes[k] = total**0.5


@jit(inner=True)
def _slope(F, x, G, start, stop, line):
    """The squared norm of the projected gradient in these columns."""
    total, zero = 0.0, x.dtype.type(0)
    for c in range(len(x)):
        F_c, x_c = F[c, start:stop], x[c, start:stop]
        for j in range(stop - start):
            line[j] = F_c[j]
        for k in range(len(x)):
            g, x_k = x.dtype.type(G[c, k]), x[k, start:stop]
            for j in range(stop - start):
                line[j] -= g * x_k[j]
        part = zero
        for j in range(stop - start):
            down = line[j] if (x_c[j] > zero or line[j] > zero) else zero
            part += down * down
        total += part
    return total


def _settled(parts, kept, F, sizes, flat, scratch, new):
    """Make W of one problem the best for H, from (VH)ᵀ in F; `new` is room for it.

    Returns whether sweeps were enough for that, and the squared error.
    """
    HtH, WtW = scratch.grams[0], scratch.grams[1]
    _gram(kept, sizes.m, kept.shape[1], HtH)
    args = (parts, F, kept, new, HtH, flat, scratch.wide, scratch.lines, sizes.m)
    whole = settle(*args)
    return whole, _error(sizes, F, kept, HtH, WtW)


# Compiled, for points of float32 or float64

_real, _count, _wide = types.float64, types.int64, array(types.float64)
_SIZES = types.NamedTuple([_count, _count, _real, _real, _real], Sizes)
_SWEEPS = types.NamedTuple([*[_count] * 4, _real], Sweeps)
_progress, _each = array(_real), array(_real, 1)


def _of(dtype: Any) -> tuple[Any, Any]:
    """The types of Points and Scratch in this precision."""
    real = numba.from_dtype(np.dtype(dtype))
    points = types.NamedUniTuple(array(real), 4, Points)
    grams = array(_real, 3)
    return points, types.NamedTuple([grams, _wide, array(real), array(real, 1)], Scratch)


@once
def half_steps(dtype: Any) -> Callable[..., None]:
    """The compiled `_half_steps`."""
    points, scratch = _of(dtype)
    given = (points, _progress, _SIZES, _SWEEPS, RATES, scratch, *[_count] * 3)
    return jit(types.void(*given))(_half_steps)


@once
def looks(dtype: Any) -> Callable[..., None]:
    """The compiled `_looks`."""
    points, scratch = _of(dtype)
    return jit(types.void(points, _SIZES, scratch, _count, _count, *[_each] * 3))(_looks)


@once
def settled() -> Callable[..., tuple[bool, float]]:
    """The compiled `_settled`, in float64."""
    _, scratch = _of(float)
    given = (loops.PARTS, _wide, _wide, _SIZES, _real, scratch, _wide)
    return jit(types.Tuple([types.boolean, _real])(*given))(_settled)


@once
def sweeping(dtype: Any) -> tuple[int, int]:
    """Where `scale` and `sweeps` stand in memory."""
    return loops.parts().scale, address(loops.sweeps(np.dtype(dtype)))


def ready() -> None:
    """Compile all that this module has."""
    for dtype in (np.dtype("f4"), np.dtype("f8")):
        for make in (half_steps, looks, sweeping):
            make(dtype)
    settled()
