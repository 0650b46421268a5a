"""The loops of `active_set`, compiled by numba. Imported where numba is present alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import types

from factormer.kernels import active_set
from factormer.kernels.compile import jit, once


def _calling(function: Callable[..., Any], **others: Any) -> Callable[..., Any]:
    """The same code, which finds compiled functions where it looks for those of its module."""
    plain = inspect.unwrap(function)
    return FunctionType(plain.__code__, {**plain.__globals__, **others}, plain.__name__)


@once
def solve_rows() -> Callable[..., int]:
    """`active_set.solve_rows`, compiled, in float64."""
    matrix, vector = types.Array(types.float64, 2, "C"), types.Array(types.float64, 1, "C")
    indices, count, real = types.Array(types.int64, 1, "C"), types.int64, types.float64
    slopes = jit(real(matrix, *[vector] * 2, real, *[vector] * 3), inner=True)(active_set.slopes)
    correct = jit(types.void(vector, indices, count, matrix, vector, vector), inner=True)(
        active_set.correct
    )
    solve_listed = jit(count(matrix, vector, indices, indices, matrix, vector, vector), inner=True)(
        _calling(active_set.solve_listed, correct=correct)
    )
    pivot_blocks = jit(
        types.boolean(
            *[matrix] * 2, *[vector] * 2, real, real, matrix, *[vector] * 4, *[indices] * 2
        ),
        inner=True,
    )(_calling(active_set.pivot_blocks, slopes=slopes, correct=correct, solve_listed=solve_listed))
    enter = jit(types.boolean(matrix, vector, indices, indices, count, count), inner=True)(
        active_set.enter
    )
    leave = jit(types.void(matrix, vector, indices, count, count), inner=True)(active_set.leave)
    solve_triangle = jit(
        types.void(matrix, *[vector] * 2, real, indices, count, *[vector] * 2), inner=True
    )(active_set.solve_triangle)
    one_by_one = jit(
        types.void(
            matrix, *[vector] * 2, real, real, vector, matrix, *[vector] * 5, *[indices] * 2
        ),
        inner=True,
    )(
        _calling(
            active_set.one_by_one,
            slopes=slopes,
            enter=enter,
            leave=leave,
            solve_triangle=solve_triangle,
        )
    )
    return jit(
        count(
            *[matrix] * 3, vector, *[matrix] * 2, count, count, real,
            *[matrix] * 2, *[vector] * 8, *[indices] * 2,
        )
    )(
        _calling(
            active_set.solve_rows, slopes=slopes, pivot_blocks=pivot_blocks, one_by_one=one_by_one
        )
    )  # fmt: skip
