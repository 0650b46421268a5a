"""Compiled versions of hot loops, each with a slow twin in torch that its docstring names.

Each is a module that is imported when it is first needed, since that may compile, and None where
numba, or on a GPU triton, is absent or may not compile: then the slow twins do the work.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

# Of a kernel on a GPU: its programs have r×r numbers at hand, the second axis of its grid is the
# stack, and it counts entries in 32 bits.
_MAX_RANK, _MAX_STACK, _MAX_ENTRIES = 128, 2**16 - 1, 2**30


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
    """ADMM steps on a GPU; None for factors that are elsewhere, or in float64, or of high rank."""
    fits = H.dtype == torch.float32 and H.shape[-1] <= _MAX_RANK // 2  # in any card's fast memory
    return _loaded("admm") if fits and _fuses(H) else None


def _fuses(X: Tensor) -> bool:
    if not X.is_cuda or torch.is_grad_enabled() or X.device.index != torch.cuda.current_device():
        return False
    *stack, _, r = X.shape
    return r <= _MAX_RANK and math.prod(stack) <= _MAX_STACK and X.numel() <= _MAX_ENTRIES


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
