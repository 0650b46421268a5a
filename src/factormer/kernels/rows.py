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
    slopes = jit(
        types.void(matrix, *[vector] * 2, real, vector, indices, *[vector] * 2), inner=True
    )(active_set.slopes)
    correct = jit(types.void(vector, indices, count, matrix, vector, vector), inner=True)(
        active_set.correct
    )
    solve_listed = jit(count(matrix, vector, indices, indices, matrix, vector, vector), inner=True)(
        _calling(active_set.solve_listed, correct=correct)
    )
    return jit(
        count(
            *[matrix] * 3, vector, matrix, count, count, real,
            matrix, *[vector] * 5, indices, indices,
        )
    )(
        _calling(active_set.solve_rows, slopes=slopes, correct=correct, solve_listed=solve_listed)
    )  # fmt: skip
