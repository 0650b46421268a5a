"""The loops of `active_set`, compiled by numba. Imported where numba is present alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import types

from factormer.kernels import active_set, lawson_hanson
from factormer.kernels.compile import jit, once


def _calling(function: Callable[..., Any], **others: Any) -> Callable[..., Any]:
    """The same code, which finds compiled functions where it looks for those of its module."""
    plain = inspect.unwrap(function)
    return FunctionType(plain.__code__, {**plain.__globals__, **others}, plain.__name__)


_MATRIX, _VECTOR = types.Array(types.float64, 2, "C"), types.Array(types.float64, 1, "C")
_INDICES, _COUNT, _REAL = types.Array(types.int64, 1, "C"), types.int64, types.float64


@once
def slopes() -> Callable[..., float]:
    """`lawson_hanson.slopes`, for compiled callers."""
    signature = _REAL(_MATRIX, *[_VECTOR] * 2, _REAL, *[_VECTOR] * 3)
    return jit(signature, inner=True)(lawson_hanson.slopes)


@once
def one_by_one() -> Callable[..., None]:
    """`lawson_hanson.one_by_one`, for compiled callers."""
    enter = jit(types.boolean(_MATRIX, _VECTOR, *[_INDICES] * 2, *[_COUNT] * 2), inner=True)(
        lawson_hanson.enter
    )
    leave = jit(types.void(_MATRIX, _VECTOR, _INDICES, *[_COUNT] * 2), inner=True)(
        lawson_hanson.leave
    )
    solve_triangle = jit(
        types.void(_MATRIX, *[_VECTOR] * 2, _REAL, _INDICES, _COUNT, *[_VECTOR] * 2), inner=True
    )(lawson_hanson.solve_triangle)
    signature = types.void(
        _MATRIX, *[_VECTOR] * 2, *[_REAL] * 2, _VECTOR, _MATRIX, *[_VECTOR] * 5, *[_INDICES] * 2
    )
    others = {"enter": enter, "leave": leave, "solve_triangle": solve_triangle}
    return jit(signature, inner=True)(_calling(lawson_hanson.one_by_one, slopes=slopes(), **others))


@once
def solve_rows() -> Callable[..., int]:
    """`active_set.solve_rows`, compiled, in float64."""
    correct = jit(types.void(_VECTOR, _INDICES, _COUNT, _MATRIX, *[_VECTOR] * 2), inner=True)(
        active_set.correct
    )
    solve_listed = jit(
        _COUNT(_MATRIX, _VECTOR, *[_INDICES] * 2, _MATRIX, *[_VECTOR] * 2), inner=True
    )(_calling(active_set.solve_listed, correct=correct))
    signature = types.boolean(
        *[_MATRIX] * 2, *[_VECTOR] * 2, *[_REAL] * 2, _MATRIX, *[_VECTOR] * 4, *[_INDICES] * 2
    )
    others = {"slopes": slopes(), "correct": correct, "solve_listed": solve_listed}
    pivot_blocks = jit(signature, inner=True)(_calling(active_set.pivot_blocks, **others))
    signature = _COUNT(
        *[_MATRIX] * 3, _VECTOR, *[_MATRIX] * 2, *[_COUNT] * 2, _REAL,
        *[_MATRIX] * 2, *[_VECTOR] * 8, *[_INDICES] * 2,
    )  # fmt: skip
    others = {"slopes": slopes(), "pivot_blocks": pivot_blocks, "one_by_one": one_by_one()}
    return jit(signature)(_calling(active_set.solve_rows, **others))


@once
def solve_sums() -> Callable[..., None]:
    """`active_set.solve_sums`, compiled, in float64."""
    signature = types.void(
        *[_MATRIX] * 2, _REAL, _MATRIX, *[_COUNT] * 2, *[_MATRIX] * 3, *[_VECTOR] * 9,
        *[_INDICES] * 2,
    )  # fmt: skip
    return jit(signature)(_calling(active_set.solve_sums, one_by_one=one_by_one()))
