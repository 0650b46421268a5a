"""A small factorization from its start to the end, stop rule included, for compiled callers.

The iterations are those of `kernels.loops`; the twin of what is around them is `run.solve` with
`run.stop.Stationary`. Imported where numba is present alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from factormer.kernels import loops
from factormer.kernels.compile import address, array, calling, jit, once
from factormer.kernels.loops import gram_at, multiply_at, scale_at, sweep_at
from factormer.kernels.products import transposed
from factormer.kernels.restart import AS_TUPLE, PROGRESS, RATES, Progress
from factormer.kernels.rules import EVERY, LOOKS, is_over

# How it ended; unresolved: errors or numbers are too small or large for these iterations.
CONVERGED, MAX_ITER, UNRESOLVED = range(3)
_LEAST = 1e-100  # mean of V, or its inverse, beyond which single calls take more care
_STEP, _APART = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S1, _S27, _S30, _S31, _S40 = (np.uint64(k) for k in (1, 27, 30, 31, 40))
_EPS = 2.0**-52
_SETTLING = 60  # sweeps that make W the best for H, if its gradient falls to
_SETTLED = 1e-7  # of the size of VH

_vector, _count, _real = array(types.float64, 1), types.int64, types.float64
_state = (loops.PARTS, loops.DATA, loops.POINTS, loops.OPTIONS)
_given = (*_state, RATES, PROGRESS, _vector, loops.SCRATCH)
_run_of = types.Tuple([_count, AS_TUPLE])(*_given)
_slope_of = _real(loops.PARTS, loops.DATA, loops.POINTS, _count)
_run_at, _slope_at = calling(_run_of), calling(_slope_of)


class Desk(NamedTuple):
    """What a problem is worked on: V over its mean, points, and a line of V."""

    data: loops.Data
    points: loops.Points
    scratch: loops.Scratch
    line: np.ndarray


class Limits(NamedTuple):
    """Sweeps for H and for W, and whether to settle W at the end."""

    sweeps_h: int
    sweeps_w: int
    settles: bool


class Rules(NamedTuple):
    """What all problems of a call have in common.

    The share of ‖V‖² that has digits enough, and that of the root of which sweeps may settle W;
    what is flat, the first β, the fall of the projected gradient to stop at; whether components are
    put in order, and their scale; and where the functions of `addresses` stand in memory.
    """

    resolved: float
    close: float
    flat: float
    beta: float
    tol: float
    order: bool
    scale: int
    iterations: int
    slope: int
    iterated: int
    finished: int
    write: int


RULES = types.NamedTuple([_real] * 5 + [types.boolean] + [_count] * 6, Rules)


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
def drawn(seed, scale, x, m):
    """A random start [Wᵀ, Hᵀ] of a seed, times `scale`, with m rows of W."""
    _draw(seed, scale, x, 0, m)
    _draw(_mixed(seed) >> _S1, scale, x, m, x.shape[1])


@jit(inner=True)
def copied(V, data):
    """V over its mean, and its transpose, to `data`; returns the mean and the sum of squares."""
    (m, n), total, squares = V.shape, 0.0, 0.0
    for i in range(m):
        row = V[i]
        for j in range(n):
            total += row[j]
    mean = total / (m * n) if total > 0 else 1.0
    if not _LEAST < mean < 1 / _LEAST:
        return mean, 0.0
    times = 1 / mean
    for i in range(m):
        row, to = V[i], data.V[i]
        for j in range(n):
            x = row[j] * times
            to[j] = x
            squares += x * x
    transposed(data.V, 0, m, 0, n, data.VT, 0, 0)
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


_is_over = jit(inner=True)(is_over)


@jit(inner=True)
def _norms(squares, x, m):
    """Return ‖V‖(‖W‖ + ‖H‖), given ‖V‖²."""
    ww = hh = 0.0
    for c in range(len(x)):
        for j in range(m):
            ww += x[c, j] * x[c, j]
        for j in range(m, x.shape[1]):
            hh += x[c, j] * x[c, j]
    return squares**0.5 * (ww**0.5 + hh**0.5)


@jit(inner=True)
def _iterate(parts, desk, options, rates, errors, rules):
    """Iterate from points.kept until the run may end or `errors`, whose first is known, is full.

    Returns the iterations made, and a status. V has the mean 1.
    """
    data, points, scratch = desk.data, desk.points, desk.scratch
    progress = Progress(rules.beta, rules.beta, 1.0, np.inf, True)
    kept, (m, n), made, most = points.kept, data.V.shape, 0, len(errors) - 1
    here = loops.Points(kept, kept, kept, points.products, points.grams)
    start = 0.0
    while True:
        if rules.tol > 0 and made % EVERY == 0:
            size = _slope_at(rules.slope, (parts, data, here, m))
            start = size if made == 0 else start
            rmse, before = (errors[made] / (m * n)) ** 0.5, np.inf
            if made >= LOOKS * EVERY:
                before = (errors[made - LOOKS * EVERY] / (m * n)) ** 0.5
            norms = _norms(options.sq_norm, kept, m)
            if _is_over(rules.tol, _EPS, size, start, rmse, before, 1.0, norms):
                return made, CONVERGED
        if made == most:
            return made, MAX_ITER
        some = min(EVERY, most - made)
        room = errors[made + 1 : made + 1 + some]
        given = (parts, data, points, options, rates, progress, room, scratch)
        done, after = _run_at(rules.iterations, given)
        made += done
        if done < some:
            return made, UNRESOLVED
        progress = Progress(after[0], after[1], after[2], after[3], after[4])


@jit(inner=True)
def _error(squares, parts, desk, side, rules):
    """‖W Hᵀ − V‖² from products: (VᵀW)ᵀ and WᵀW (side 0), or (VH)ᵀ and HᵀH (side 1).

    Where that leaves too few digits, entry by entry. The Gram matrix of the other side is made.
    """
    x, F, grams, m = desk.points.kept, desk.points.products, desk.points.grams, len(desk.data.V)
    start, stop = (m, x.shape[1]) if side == 0 else (0, m)
    gram_at(parts.gram, (x, start, stop, grams[0]))
    error = squares
    for c in range(len(x)):
        for j in range(start, stop):
            error -= 2 * F[c, j] * x[c, j]
        for k in range(len(x)):
            error += grams[0, c, k] * grams[1, c, k]
    is_clear = error > rules.close**2 * squares
    return error if is_clear else _misfit(desk.data, x, desk.line)


def _iterated(seed, squares, parts, desk, rates, errors, limits, rules):
    """A run on the V of `desk`, with this ‖V‖², from a random start; points.kept has its end.

    `errors` gets the squared error of the start and of every iterate. Returns the iterations made,
    and the status.
    """
    (m, n), points, r = desk.data.V.shape, desk.points, len(desk.points.kept)
    kept, scale = points.kept, (4.0 / r) ** 0.5
    drawn(seed, scale, kept, m)
    for c in range(r):
        for j in range(m + n):
            points.proposed[c, j] = kept[c, j]
    gram_at(parts.gram, (kept, 0, m, points.grams[1]))
    multiply_at(parts.multiply, (kept, 0, desk.data.V, points.products, m))
    errors[0] = _error(squares, parts, desk, 0, rules)
    options = loops.Options(limits.sweeps_h, limits.sweeps_w, squares, rules.resolved, rules.flat)
    return _iterate(parts, desk, options, rates, errors, rules)


def _finished(squares, error, parts, desk, limits, rules):
    """Settle W if that is asked, at a point with this error.

    Returns the squared error, and whether nothing is left to do: no W to settle with more care.
    """
    kept, F, G, m = desk.points.kept, desk.points.products, desk.points.grams[1], len(desk.data.V)
    settled = True
    if limits.settles:
        gram_at(parts.gram, (kept, m, kept.shape[1], G))
        multiply_at(parts.multiply, (kept, m, desk.data.VT, F, 0))
        new, scratch = desk.points.new, desk.scratch
        settled = settle(parts, F, kept, new, G, rules.flat, scratch.g, scratch.lines, m)
        error = _error(squares, parts, desk, 1, rules)
    elif error <= rules.close**2 * squares:
        error = _misfit(desk.data, kept, desk.line)
    return error, not limits.settles or (settled and error > rules.close**2 * squares)


_DESK = types.NamedTuple([loops.DATA, loops.POINTS, loops.SCRATCH, _vector], Desk)
_LIMITS = types.NamedTuple([_count] * 2 + [types.boolean], Limits)
_iterated_of = types.Tuple([_count, _count])(
    types.uint64, _real, loops.PARTS, _DESK, RATES, _vector, _LIMITS, RULES
)
_finished_of = types.Tuple([_real, types.boolean])(_real, _real, loops.PARTS, _DESK, _LIMITS, RULES)
iterated_at, finished_at = calling(_iterated_of), calling(_finished_of)


@once
def _functions() -> list[Any]:
    iterated = jit(_iterated_of, inner=True)(_iterated)
    finished = jit(_finished_of, inner=True)(_finished)
    return [loops.extrapolated(), loops.slope(), iterated, finished, write()]


@once
def addresses() -> list[int]:
    """Where the compiled iterations, `slope`, `_iterated`, `_finished` and `_write` stand."""
    return [address(function) for function in _functions()]


def _write(kept, unit, order, mode, W, H, room):
    """Components by share, the largest first, and to scale, on V times `unit`, by rows to W and H.

    The twin is `run.order.canonical`; mode 0 leaves the scale, 1 balances, 2 lets columns of H sum
    to 1. `room` (3, r) is overwritten.
    """
    (r, both), m, root, whole = kept.shape, len(W), unit**0.5, 0.0
    shares, times, places = room[0], room[1], room[2]
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
            while k > 0 and shares[int(places[k])] > shares[int(places[k - 1])]:
                places[k], places[k - 1] = places[k - 1], places[k]
                k -= 1
    for k in range(r):
        c = int(places[k])
        for j in range(m):
            W[j, k] = kept[c, j] * times[c] * root
        for j in range(m, both):
            H[j - m, k] = kept[c, j] / times[c] * root


_matrix = array(types.float64)
_write_of = types.void(_matrix, _real, types.boolean, _count, *[_matrix] * 3)
write_at = calling(_write_of)


@once
def write() -> Callable[..., None]:
    """The compiled `_write`."""
    return jit(_write_of)(_write)
