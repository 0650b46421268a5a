"""Compiled CPU versions of hot loops, each with a slow twin in torch that its docstring names.

Each is a module that is imported when it is first needed, since that may compile, and None where
numba is absent: then the slow twins do the work.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType


def compiled() -> ModuleType | None:
    """Sweeps of HALS, and its iterations as a whole."""
    return _loaded("loops")


def any_rank() -> ModuleType | None:
    """The any-rank accelerator."""
    return _loaded("network")


def newton_rows() -> ModuleType | None:
    """Newton steps for other losses."""
    return _loaded("divergence")


def kullback_rows() -> ModuleType | None:
    """Newton steps for dense data under Kullback–Leibler, and its iterations as a whole."""
    return _loaded("kullback")


@cache
def _loaded(name: str) -> ModuleType | None:
    try:
        return import_module(f"factormer.kernels.{name}")
    except ImportError:
        return None
