"""Small factorizations one after another in one compiled call, each with its own stop.

What is done with one of them is in `kernels.whole`. Problems may differ in shape and rank: rows of
a table say where each V stands, and all take turns in the same room. Imported by
`kernels.several_problems()` alone, where numba is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from factormer.kernels import loops, whole
from factormer.kernels.compile import array, jit, once
from factormer.kernels.loops import LANES
from factormer.kernels.restart import RATES
from factormer.kernels.whole import (
    CONVERGED,
    UNRESOLVED,
    Desk,
    Limits,
    Rules,
    addresses,
    copied,
    finished_at,
    iterated_at,
    write,
    write_at,
)

__all__ = ["CONVERGED", "UNRESOLVED", "Rules", "addresses", "factorize", "ready", "room", "write"]

# Columns of a table of problems: where V stands, m, n and r, sweeps of H and of W, whether W is
# settled, the place of its first seed and how many it has, and the place of its factors.
# Columns of what comes of each: the mean of V, the root of the mean square of V over it, the rmse
# on that, iterations, status, whether its factors are finished, and the place of its errors.
MEAN, SIZE, RMSE, N_ITER, STATUS, FINISHED, PLACE = range(7)
_ALIGNED = 8  # numbers that arrays begin at multiples of


def _as_array(_: Any, address: Any, shape: Any) -> tuple[Any, Callable[..., Any]]:
    """The numbers that stand at an address, as an array of this shape."""
    kind = array(types.float64, len(shape))

    def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
        made, sizes = context.make_array(kind)(context, builder), values[1]
        sizes = cgutils.unpack_tuple(builder, sizes)
        strides = [itemsize := cgutils.intp_t(8)]
        for size in sizes[:0:-1]:
            strides.insert(0, builder.mul(strides[0], size))
        data = builder.inttoptr(values[0], made.data.type)
        populate_array(made, data, sizes, strides, itemsize, None)
        return made._getvalue()

    return kind(types.intp, types.UniTuple(types.intp, len(shape))), lower


_array_at: Any = intrinsic(_as_array)


def room(m: int, n: int, r: int) -> int:
    """Numbers that a problem works with: those of `_desk`, each array rounded up."""
    even, wide = (r + 1) // 2 * 2, (r + 3) // 4 * 4 + 2
    scratch = even * wide + (even + wide - 2) * LANES
    return 2 * m * n + 5 * r * (m + n) + 2 * r * r + scratch + n + 3 * r + 16 * _ALIGNED


@jit(inner=True, inline=True)
def _desk(work, m, n, r):
    """A desk in this room, a further point, and room (3, r)."""
    even, wide = (r + 1) // 2 * 2, (r + 3) // 4 * 4 + 2
    data, point, length = _whole(m * n), _whole(r * (m + n)), (even + wide - 2) * LANES
    VT = work.ctypes.data + data
    kept = VT + data
    grams = kept + 5 * point
    g = grams + _whole(2 * r * r)
    lines = g + _whole(even * wide)
    line = lines + _whole(length)
    more, none, x = line + _whole(n), _array_at(VT, (0, 0)), (r, m + n)
    points = loops.Points(
        _array_at(kept, x),
        _array_at(kept + point, x),
        _array_at(kept + 2 * point, x),
        _array_at(kept + 3 * point, x),
        _array_at(grams, (2, r, r)),
    )
    desk = Desk(
        loops.Data(_array_at(VT - data, (m, n)), _array_at(VT, (n, m)), none, none, none),
        points,
        loops.Scratch(_array_at(g, (even, wide)), _array_at(lines, (length,))),
        _array_at(line, (n,)),
    )
    return desk, _array_at(kept + 4 * point, x), _array_at(more, (3, r))


@jit(inner=True)
def _whole(count):
    """Bytes of so many numbers, rounded up so that the next array begins with a line of memory."""
    return 8 * ((count + _ALIGNED - 1) & -_ALIGNED)


@jit(inner=True)
def _copy(x, to):
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            to[c, j] = x[c, j]


@jit(inner=True)
def _best(V, seeds, parts, rates, limits, rules, desk, best, errors, history):
    """The best of runs from these seeds, in points.kept, and its errors in `history`.

    Returns the mean of V, ‖V‖² over its square, iterations, and the status.
    """
    kept, made, status = desk.points.kept, 0, UNRESOLVED
    mean, squares = copied(V, desk.data)
    if not 0.0 < squares < np.inf:
        return mean, squares, 0, UNRESOLVED
    for s in range(len(seeds)):
        given = (seeds[s], squares, parts, desk, rates, errors, limits, rules)
        some, ended = iterated_at(rules.iterated, given)
        if ended == UNRESOLVED:
            return mean, squares, some, UNRESOLVED
        if s == 0 or errors[some] < history[made]:
            made, status = some, ended
            for t in range(made + 1):
                history[t] = errors[t]
            _copy(kept, best)
    _copy(best, kept)
    return mean, squares, made, status


def _factorize(table, seeds, parts, rates, rules, work, errors, factors, histories, numbers):
    """Factorize the problems of a table: `numbers` has a row for each, and `factors` its W and H.

    These are by rows, one after the other, in order and to scale, on V itself. Where W has to be
    settled with more care, there is the point [Wᵀ, Hᵀ] on V over its mean, as it was. `histories`
    has the rmse of every iterate on V over its mean, of one problem after another.
    """
    place = 0
    for k in range(len(table)):
        row, number = table[k], numbers[k]
        m, n, r = row[1], row[2], row[3]
        V, limits = _array_at(row[0], (m, n)), Limits(row[4], row[5], row[6] != 0)
        desk, best, more = _desk(work, m, n, r)
        history, lines = histories[place:], desk.scratch.lines
        for j in range(len(lines)):
            lines[j] = 0.0
        own = seeds[row[7] : row[7] + row[8]]
        mean, squares, made, status = _best(
            V, own, parts, rates, limits, rules, desk, best, errors, history
        )
        number[MEAN], number[N_ITER], number[STATUS], number[PLACE] = mean, made, status, place
        if status == UNRESOLVED:
            continue
        error, is_finished = finished_at(
            rules.finished, (squares, history[made], parts, desk, limits, rules)
        )
        for t in range(made + 1):
            history[t] = (history[t] / (m * n)) ** 0.5
        place += made + 1
        number[SIZE], number[RMSE] = (squares / (m * n)) ** 0.5, (error / (m * n)) ** 0.5
        number[FINISHED] = 1.0 if is_finished else 0.0
        to = factors.ctypes.data + 8 * row[9]
        if is_finished:
            W, at = _array_at(to, (m, r)), to + 8 * m * r
            H = _array_at(at, (n, r))
            given = (desk.points.kept, mean, rules.order, rules.scale, W, H, more)
            write_at(rules.write, given)
        else:
            _copy(desk.points.kept, _array_at(to, (r, m + n)))


_vector, _matrix = array(types.float64, 1), array(types.float64)


@once
def factorize() -> Callable[..., None]:
    """The compiled `_factorize`."""
    given = (array(types.int64), array(types.uint64, 1), loops.PARTS, RATES, whole.RULES)
    return jit(types.void(*given, *[_vector] * 4, _matrix))(_factorize)


def ready() -> None:
    """Compile all that this module has."""
    for make in (factorize, addresses):
        make()
