"""A small factorization from its start to the end, stop rule included, in one compiled call.

The iterations are those of `kernels.loops`; the twin of what is around them is `run.solve` with
`run.stop.Stationary`. Imported by `kernels.whole_problems()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from numba import types

from factormer.kernels import loops
from factormer.kernels.compile import address, array, calling, jit, once
from factormer.kernels.loops import gram_at, multiply_at, scale_at, sweep_at
from factormer.kernels.restart import AS_TUPLE, PROGRESS, RATES, Progress

CONVERGED, MAX_ITER, UNRESOLVED = range(3)  # the last: errors are too small for these iterations
_EPS = 2.0**-52
_EVERY, _LOOKS = 10, 5  # as in `Stationary`
_SETTLING = 60  # sweeps that make W the best for H, if its gradient falls to
_SETTLED = 1e-7  # of the size of VH

_vector, _count, _real = array(types.float64, 1), types.int64, types.float64
_state = (loops.PARTS, loops.DATA, loops.POINTS, loops.OPTIONS)
_given = (*_state, RATES, PROGRESS, _vector, loops.SCRATCH)
_run_of = types.Tuple([_count, AS_TUPLE])(*_given)
_slope_of = _real(loops.PARTS, loops.DATA, loops.POINTS, _count)
_run_at, _slope_at = calling(_run_of), calling(_slope_of)


class Limits(NamedTuple):
    """The fall of the projected gradient to stop at, the number of entries, and whether to settle.

    Rows of V, and where the compiled iterations and `slope` stand in memory.
    """

    tol: float
    entries: float
    settles: bool
    m: int
    iterations: int
    slope: int


@jit(inner=True)
def settle(parts, F, kept, new, G, flat, g, lines, m):
    """Make W the best for H from (VH)ᵀ in F and HᵀH in G, unless it was better before.

    Returns whether sweeps were enough for that.
    """
    scale_at(parts.scale, (G, flat, g))
    sweep_at(parts.sweep, (F, kept, new, _SETTLING, 0, m, g, lines))
    change = slope = size = 0.0
    for c in range(len(G)):
        for j in range(m):
            before, after = -2 * F[c, j], -2 * F[c, j]
            for k in range(len(G)):
                before += G[c, k] * kept[k, j]
                after += G[c, k] * new[k, j]
            change += after * new[c, j] - before * kept[c, j]
            down = after + F[c, j]
            if new[c, j] > 0 or down < 0:
                slope += down * down
            size += F[c, j] ** 2
    if change < 0:
        for c in range(len(G)):
            for j in range(m):
                kept[c, j] = new[c, j]
    return slope <= _SETTLED**2 * size


def _factorize(parts, data, points, options, rates, progress, errors, scratch, limits):
    """Iterate from points.kept until the projected gradient has fallen, or `errors` is full.

    Returns the iterations made, a status, and whether W is the best for H.
    """
    kept, m, made, status, looks = points.kept, limits.m, 0, MAX_ITER, 0
    here = loops.Points(kept, kept, kept, points.products, points.grams)
    start = _slope_at(limits.slope, (parts, data, here, m)) if limits.tol > 0 else 1.0
    if start == 0 or limits.tol >= 1:
        return 0, CONVERGED, False
    while made < len(errors):
        n = min(_EVERY, len(errors) - made)
        done, after = _run_at(
            limits.iterations,
            (parts, data, points, options, rates, progress, errors[made : made + n], scratch),
        )
        made += done
        if done < n:
            return made, UNRESOLVED, False
        progress = Progress(after[0], after[1], after[2], after[3], after[4])
        if limits.tol > 0 and n == _EVERY:
            fall, error = _slope_at(limits.slope, (parts, data, here, m)) / start, errors[made - 1]
            rmse = (error / limits.entries) ** 0.5
            if fall <= limits.tol or rmse <= 10 * _EPS:
                status = CONVERGED
            looks += 1
            if looks > _LOOKS:
                before = (errors[made - 1 - _LOOKS * _EVERY] / limits.entries) ** 0.5
                if before - rmse <= 4 * _EPS * rmse and fall <= 10 * _EPS**0.5:
                    status = CONVERGED
            if status == CONVERGED:
                break
    settled = True
    if limits.settles:
        F, G = points.products, points.grams[1]
        gram_at(parts.gram, (kept, m, kept.shape[1], G))
        multiply_at(parts.multiply, (kept, m, data.VT, F, 0))
        flat, g, lines = options.flat, scratch.g, scratch.lines
        settled = settle(parts, F, kept, points.new, G, flat, g, lines, m)
    return made, status, settled


@once
def factorize() -> Callable[..., tuple[int, int, bool]]:
    """The compiled `_factorize`."""
    limits = types.NamedTuple([_real, _real, types.boolean, *[_count] * 3], Limits)
    return jit(types.Tuple([_count, _count, types.boolean])(*_given, limits))(_factorize)


@once
def addresses() -> tuple[int, int]:
    """Where the compiled iterations and `slope` stand."""
    return address(loops.extrapolated()), address(loops.slope())


def _write(kept, unit, order, mode, W, H, room, places):
    """Components by share, the largest first, and to scale, on V times `unit`, by rows to W and H.

    The twin is `run.order.canonical`; mode 0 leaves the scale, 1 balances, 2 lets columns of H sum
    to 1. `room` (2, r) and `places` (r,) are overwritten.
    """
    (r, both), m, root = kept.shape, len(W), unit**0.5
    shares, times, whole = room[0], room[1], 0.0
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
            while k > 0 and shares[places[k]] > shares[places[k - 1]]:
                places[k], places[k - 1] = places[k - 1], places[k]
                k -= 1
    for k in range(r):
        c = places[k]
        for j in range(m):
            W[j, k] = kept[c, j] * times[c] * root
        for j in range(m, both):
            H[j - m, k] = kept[c, j] / times[c] * root


@once
def write() -> Callable[..., None]:
    """The compiled `_write`."""
    matrix = array(types.float64)
    places = array(types.int64, 1)
    signature = types.void(matrix, _real, types.boolean, _count, *[matrix] * 3, places)
    return jit(signature)(_write)


def ready() -> None:
    """Compile all that this module has."""
    for make in (factorize, write, addresses):
        make()
