"""Compiled CPU versions of hot loops, each with a slow twin in torch that its docstring names."""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def compiled() -> ModuleType | None:
    """The compiled loops, or None where numba is absent: then their slow twins do the work."""
    try:
        from factormer.kernels import loops
    except ImportError:
        return None
    return loops


@cache
def newton_rows() -> ModuleType | None:
    """The compiled Newton steps of other losses, or None where numba is absent."""
    try:
        from factormer.kernels import divergence
    except ImportError:
        return None
    return divergence
