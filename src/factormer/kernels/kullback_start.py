"""A start for a small matrix of counts, and the gradient there, compiled by numba.

The twins are `run.lifting.Squared` with a random start, `Problem.normalized`, and
`Problem.stationarity` under Kullback–Leibler. Imported where numba is present alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import types

from factormer.kernels import loops
from factormer.kernels.compile import array, calling, jit, once
from factormer.kernels.entrywise import logarithms, tiny_of
from factormer.kernels.products import transposed
from factormer.kernels.restart import AS_TUPLE, PROGRESS, RATES, Progress
from factormer.kernels.whole import copied, drawn

_EPS = 2.0**-52


class Desk(NamedTuple):
    """V over its mean and its transpose; the same of their roots, and what fits these.

    `logs` and `exponents` have room for a row of V.
    """

    V: np.ndarray
    VT: np.ndarray
    data: loops.Data
    points: loops.Points
    scratch: loops.Scratch
    logs: np.ndarray
    exponents: np.ndarray

    @staticmethod
    def of(m: int, n: int, r: int) -> Desk:
        """For V (m, n) at rank r."""
        V, VT, none = np.empty((m, n)), np.empty((n, m)), np.empty((0, 0))
        data = loops.Data(np.empty((m, n)), np.empty((n, m)), none, none, none)
        kept, proposed, new, products = (np.empty((r, m + n)) for _ in range(4))
        points = loops.Points(kept, proposed, new, products, np.empty((2, r, r)))
        scratch = loops.Scratch.of(loops.unscaled(r))
        return Desk(V, VT, data, points, scratch, np.empty(n), np.empty(n, np.int64))


class Rules(NamedTuple):
    """How roots are fitted: see `loops.Options` and `Rates`; `share` as in `lifting.lifted`."""

    sweeps_h: int
    sweeps_w: int
    resolved: float
    flat: float
    beta: float
    share: float


@jit(inner=True)
def _rooted(desk):
    """The roots of V and of its transpose; returns their sum, and that of their squares."""
    (m, n), total, squares = desk.V.shape, 0.0, 0.0
    for i in range(m):
        v, root = desk.V[i], desk.data.V[i]
        for j in range(n):
            root[j] = v[j] ** 0.5
            total += root[j]
            squares += v[j]
    transposed(desk.data.V, 0, m, 0, n, desk.data.VT, 0, 0)
    return total, squares


@jit(inner=True)
def _squared(x, m, share):
    """Square the factors, and lift what is below that share of the mean of its component."""
    both = x.shape[1]
    for c in range(len(x)):
        for side in range(2):
            part = x[c, :m] if side == 0 else x[c, m:both]
            total = 0.0
            for j in range(len(part)):
                part[j] *= part[j]
                total += part[j]
            least = share * total / len(part)
            if not least > 0:  # which it is where all are zero, or squares are too small
                least = _EPS
            for j in range(len(part)):
                part[j] = max(part[j], least)


@jit(inner=True)
def _fit(x, i, m, y):
    """A row of W Hᵀ, to y."""
    for j in range(len(y)):
        y[j] = 0.0
    for c in range(len(x)):
        w, h = x[c, i], x[c, m:]
        for j in range(len(y)):
            y[j] += w * h[j]


@jit(inner=True)
def _loss(desk, x):
    """Σ v log(v/y) − v + y."""
    (m, n), y, tiny, total = desk.V.shape, desk.logs, tiny_of(desk.V), 0.0
    for i in range(m):
        v = desk.V[i]
        _fit(x, i, m, y)
        for j in range(n):
            total += y[j] - v[j]
            y[j] = max(v[j], tiny) / max(y[j], tiny)
        logarithms(n, y, desk.exponents)
        for j in range(n):
            total += v[j] * y[j]
    return total


_run_of = types.Tuple([types.int64, AS_TUPLE])(
    loops.PARTS, loops.DATA, loops.POINTS, loops.OPTIONS, RATES, PROGRESS,
    array(types.float64, 1), loops.SCRATCH,
)  # fmt: skip
_run_at = calling(_run_of)


def _start(V, seed, parts, iterations, rates, rules, errors, desk, x):
    """Factors [W; H] (m + n, r) for V over its mean, to `x`: squares of those that fit the roots.

    As many iterations on the roots as `errors` has room for. Returns the mean of V and the loss;
    that is no number where other code has to take more care.
    """
    points, kept = desk.points, desk.points.kept
    mean, size = copied(V, desk)
    if not 0.0 < size < np.inf:
        return mean, np.nan
    (m, n), r = V.shape, len(kept)
    total, squares = _rooted(desk)
    drawn(seed, (4.0 / r * (total / (m * n))) ** 0.5, kept, m)
    for c in range(r):
        for j in range(m + n):
            points.proposed[c, j] = kept[c, j]
    lines = desk.scratch.lines
    for j in range(len(lines)):
        lines[j] = 0.0
    options = loops.Options(rules.sweeps_h, rules.sweeps_w, squares, rules.resolved, rules.flat)
    progress = Progress(rules.beta, rules.beta, 1.0, np.inf, True)
    made, _ = _run_at(
        iterations,
        (parts, desk.data, points, options, rates, progress, errors, desk.scratch),
    )
    if made < len(errors):
        return mean, np.nan
    _squared(kept, m, rules.share)
    transposed(kept, 0, r, 0, m + n, x, 0, 0)
    return mean, _loss(desk, kept)


_matrix, _vector = array(types.float64), array(types.float64, 1)
DESK = types.NamedTuple(
    [_matrix, _matrix, loops.DATA, loops.POINTS, loops.SCRATCH, _vector, array(types.int64, 1)],
    Desk,
)
RULES = types.NamedTuple([types.int64] * 2 + [types.float64] * 4, Rules)


@once
def start() -> Callable[..., tuple[float, float]]:
    """The compiled `_start`."""
    given = (_matrix, types.uint64, loops.PARTS, types.int64, RATES, RULES, _vector, DESK, _matrix)
    return jit(types.UniTuple(types.float64, 2)(*given))(_start)
