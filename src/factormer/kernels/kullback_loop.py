"""Whole iterations of Newton steps under Kullback–Leibler, extrapolated, compiled by numba.

The twin is `Restarted(Newton())`. Imported where numba is present alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import types

from factormer.kernels.compile import array, jit, once
from factormer.kernels.kullback import OPTIONS, room_of, rows_within
from factormer.kernels.restart import AS_TUPLE, PROGRESS, RATES, as_tuple, extrapolate, judged


class Points(NamedTuple):
    """[W; H] (m + n, r): the point kept, the proposal, the new one; and room for a factor.

    `linear` (r,) is room for the sum of its rows.
    """

    kept: np.ndarray
    proposed: np.ndarray
    new: np.ndarray
    other: np.ndarray
    linear: np.ndarray


@jit(inner=True)
def _half_step(V, given, before, after, options, wants_loss, points, room):
    """A Newton step from `before` to `after`, for the other factor `given`; returns the loss."""
    other, linear = points.other[: len(given)], points.linear
    linear[:] = 0
    for i in range(len(given)):
        for c in range(len(linear)):
            other[i, c] = max(given[i, c], 0)
            linear[c] += other[i, c]
    rows = len(after)
    return rows_within(V, other, linear, before, after, 0, rows, options, wants_loss, room)


@jit(inner=True)
def _penalty(X, options):
    """Twice what the penalties on a factor add to the objective."""
    total = 0.0
    if options.l1 > 0 or options.l2 > 0:
        for i in range(len(X)):
            for c in range(X.shape[1]):
                total += X[i, c] * (2 * options.l1 + options.l2 * X[i, c])
    return total


def _iterations(V, VT, points, on_h, on_w, rates, progress, errors, room):
    """Iterations extrapolated with restart, in place, as many as `errors` has room for.

    Returns how it stands after them.
    """
    m, proposed, new = len(V), points.proposed, points.new
    for t in range(len(errors)):
        _half_step(V, proposed[:m], proposed[m:], new[m:], on_h, False, points, room)
        loss = _half_step(VT, new[m:], proposed[:m], new[:m], on_w, True, points, room)
        error = max(_penalty(new[m:], on_h) + 2 * loss, 0.0)  # but for rounding
        after = judged(progress, error, rates)
        extrapolate(points.kept, proposed, new, progress.beta, after.plain)
        progress, errors[t] = after, after.error
    return as_tuple(progress)


@once
def iterations() -> Callable[..., tuple[float, float, float, float, bool]]:
    """The compiled iterations, in float64: `_iterations`."""
    matrix, vector = array(types.float64), array(types.float64, 1)
    points = types.NamedTuple([*[matrix] * 4, vector], Points)
    options = (OPTIONS, OPTIONS, RATES, PROGRESS)
    return jit(AS_TUPLE(matrix, matrix, points, *options, vector, room_of(types.float64)))(
        _iterations
    )
