"""Compiled versions of hot loops, each with a slow twin in torch that its docstring names.

Each is a module that is imported when it is first needed, since that may compile, and None where
numba, or on a GPU triton, is absent: then the slow twins do the work.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

_MAX_RANK = 128  # of a kernel on a GPU, whose programs have r×r numbers at hand


def compiled() -> ModuleType | None:
    """Sweeps of HALS, and its iterations as a whole."""
    return _loaded("loops")


def any_rank() -> ModuleType | None:
    """The any-rank accelerator."""
    return _loaded("network")


def fused(X: Tensor) -> ModuleType | None:
    """The any-rank accelerator on a GPU; None for factors, or Gram matrices, that are elsewhere."""
    return _loaded("gpu") if _fuses(X) else None


def fused_admm(H: Tensor) -> ModuleType | None:
    """ADMM steps on a GPU; None for factors that are elsewhere, or in float64."""
    return _loaded("admm") if _fuses(H) and H.dtype == torch.float32 else None


def _fuses(X: Tensor) -> bool:
    return X.is_cuda and X.shape[-1] <= _MAX_RANK and not torch.is_grad_enabled()


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
