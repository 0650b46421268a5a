"""A small factorization from its start to the end, stop rule included, in one compiled call.

The iterations are those of `kernels.loops`; the twin of what is around them is `run.solve` with
`run.stop.Stationary`. Imported by `kernels.whole_problems()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import types

from factormer.kernels import loops
from factormer.kernels.compile import address, array, calling, jit, once
from factormer.kernels.loops import gram_at, multiply_at, scale_at, sweep_at
from factormer.kernels.restart import AS_TUPLE, PROGRESS, RATES, Progress

# How it ended; unresolved: errors or numbers are too small or large for these iterations.
CONVERGED, MAX_ITER, UNRESOLVED = range(3)
_LEAST = 1e-100  # mean of V, or its inverse, beyond which single calls take more care
_STEP, _APART = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S1, _S27, _S30, _S31, _S40 = (np.uint64(k) for k in (1, 27, 30, 31, 40))
_EPS = 2.0**-52
_EVERY, _LOOKS = 10, 5  # as in `Stationary`
_SETTLING = 60  # sweeps that make W the best for H, if its gradient falls to
_SETTLED = 1e-7  # of the size of VH

_vector, _count, _real = array(types.float64, 1), types.int64, types.float64
_state = (loops.PARTS, loops.DATA, loops.POINTS, loops.OPTIONS)
_given = (*_state, RATES, PROGRESS, _vector, loops.SCRATCH)
_seed = types.uint64
_run_of = types.Tuple([_count, AS_TUPLE])(*_given)
_slope_of = _real(loops.PARTS, loops.DATA, loops.POINTS, _count)
_run_at, _slope_at = calling(_run_of), calling(_slope_of)


class Desk(NamedTuple):
    """What a problem of some shape and rank is worked on: V over its mean, points, and a line."""

    data: loops.Data
    points: loops.Points
    scratch: loops.Scratch
    line: np.ndarray

    @staticmethod
    def of(m: int, n: int, r: int) -> Desk:
        """For V (m, n) at rank r; it serves one problem after another."""
        none, V, VT = np.empty((0, 0)), np.empty((m, n)), np.empty((n, m))
        kept, proposed, new, products = (np.empty((r, m + n)) for _ in range(4))
        points = loops.Points(kept, proposed, new, products, np.empty((2, r, r)))
        scratch = loops.Scratch.of(loops.unscaled(r))
        return Desk(loops.Data(V, VT, none, none, none), points, scratch, np.empty(n))


class Limits(NamedTuple):
    """Sweeps for H and for W, the share of ‖V‖² that has digits enough, what is flat, the first β.

    The fall of the projected gradient to stop at, whether to settle, and where the compiled
    iterations and `slope` stand in memory.
    """

    sweeps_h: int
    sweeps_w: int
    resolved: float
    flat: float
    beta: float
    tol: float
    settles: bool
    iterations: int
    slope: int


@jit(inner=True)
def _mixed(x):
    """The twin is `data.draws.mixed`."""
    x += _STEP
    x ^= x >> _S30
    x *= _FIRST
    x ^= x >> _S27
    x *= _SECOND
    return x ^ (x >> _S31)


@jit(inner=True)
def _draw(seed, scale, x, start, stop):
    """The numbers of a seed for these columns of x, times `scale`; `data.draws.uniform`."""
    r = np.uint64(len(x))
    for c in range(len(x)):
        x_c, k = x[c], np.uint64(c)
        for j in range(start, stop):
            x_c[j] = float(_mixed(k * _APART + seed) >> _S40) * 2.0**-24 * scale
            k += r


@jit(inner=True)
def _copied(V, data):
    """V over its mean, and its transpose, to `data`; returns the mean and the sum of squares."""
    (m, n), total, squares = V.shape, 0.0, 0.0
    for i in range(m):
        row = V[i]
        for j in range(n):
            total += row[j]
    mean = total / (m * n) if total > 0 else 1.0
    if not _LEAST < mean < 1 / _LEAST:
        return mean, 0.0
    for i in range(m):
        row, to = V[i], data.V[i]
        for j in range(n):
            x = row[j] / mean
            to[j] = x
            data.VT[j, i] = x
            squares += x * x
    return mean, squares


@jit(inner=True)
def _misfit(data, x, line):
    """‖W Hᵀ − V‖² entry by entry."""
    (m, n), total = data.V.shape, 0.0
    for i in range(m):
        V_i = data.V[i]
        for j in range(n):
            line[j] = -V_i[j]
        for c in range(len(x)):
            w, H_c = x[c, i], x[c, m:]
            for j in range(n):
                line[j] += w * H_c[j]
        for j in range(n):
            total += line[j] * line[j]
    return total


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


@jit(inner=True)
def _iterate(parts, desk, options, rates, errors, limits):
    """Iterate from points.kept until the projected gradient has fallen, or `errors` is full.

    Returns the iterations made, and a status.
    """
    data, points, scratch = desk.data, desk.points, desk.scratch
    progress = Progress(limits.beta, limits.beta, 1.0, np.inf, True)
    kept, (m, n), made, looks = points.kept, data.V.shape, 0, 0
    here = loops.Points(kept, kept, kept, points.products, points.grams)
    start = _slope_at(limits.slope, (parts, data, here, m)) if limits.tol > 0 else 1.0
    if start == 0 or limits.tol >= 1:
        return 0, CONVERGED
    while made < len(errors):
        some = min(_EVERY, len(errors) - made)
        room = errors[made : made + some]
        done, after = _run_at(
            limits.iterations,
            (parts, data, points, options, rates, progress, room, scratch),
        )
        made += done
        if done < some:
            return made, UNRESOLVED
        progress = Progress(after[0], after[1], after[2], after[3], after[4])
        if limits.tol > 0 and some == _EVERY:
            fall = _slope_at(limits.slope, (parts, data, here, m)) / start
            rmse = (errors[made - 1] / (m * n)) ** 0.5
            if fall <= limits.tol or rmse <= 10 * _EPS:
                return made, CONVERGED
            looks += 1
            if looks > _LOOKS:
                before = (errors[made - 1 - _LOOKS * _EVERY] / (m * n)) ** 0.5
                if before - rmse <= 4 * _EPS * rmse and fall <= 10 * _EPS**0.5:
                    return made, CONVERGED
    return made, MAX_ITER


def _factorize(V, seed, parts, desk, rates, errors, limits):
    """V / its mean at `desk`, from a random start to its end, which points.kept then has.

    `errors` gets the rmse of the start and of every iterate, on V over its mean. Returns the mean
    of V, the root of the mean square of V over it, the rmse at the end, the iterations made, the
    status, and whether W is the best for H.
    """
    (m, n), kept, r = V.shape, desk.points.kept, len(desk.points.kept)
    mean, squares = _copied(V, desk.data)
    if not 0.0 < squares < np.inf:
        return mean, 0.0, 0.0, 0, UNRESOLVED, False
    scale = (4.0 / r) ** 0.5
    _draw(seed, scale, kept, 0, m)
    _draw(_mixed(seed) >> _S1, scale, kept, m, m + n)
    for c in range(r):
        for j in range(m + n):
            desk.points.proposed[c, j] = kept[c, j]
    errors[0] = _misfit(desk.data, kept, desk.line)
    options = loops.Options(limits.sweeps_h, limits.sweeps_w, squares, limits.resolved, limits.flat)
    made, status = _iterate(parts, desk, options, rates, errors[1:], limits)
    settled = True
    if limits.settles and status != UNRESOLVED:
        F, G, scratch = desk.points.products, desk.points.grams[1], desk.scratch
        gram_at(parts.gram, (kept, m, m + n, G))
        multiply_at(parts.multiply, (kept, m, desk.data.VT, F, 0))
        settled = settle(
            parts, F, kept, desk.points.new, G, limits.flat, scratch.g, scratch.lines, m
        )
    for t in range(made + 1):
        errors[t] = (errors[t] / (m * n)) ** 0.5
    rmse = (_misfit(desk.data, kept, desk.line) / (m * n)) ** 0.5
    return mean, (squares / (m * n)) ** 0.5, rmse, made, status, settled


@once
def factorize() -> Callable[..., tuple[float, float, float, int, int, bool]]:
    """The compiled `_factorize`."""
    matrix = array(types.float64)
    desk = types.NamedTuple([loops.DATA, loops.POINTS, loops.SCRATCH, _vector], Desk)
    kinds = [_count] * 2 + [_real] * 4 + [types.boolean] + [_count] * 2
    limits = types.NamedTuple(kinds, Limits)
    returned = types.Tuple([_real] * 3 + [_count] * 2 + [types.boolean])
    return jit(returned(matrix, _seed, loops.PARTS, desk, RATES, _vector, limits))(_factorize)


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
