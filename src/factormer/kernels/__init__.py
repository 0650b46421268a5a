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
    return _loaded("gpu") if fuses(X.device, X.shape[-1]) else None


def fused_admm(H: Tensor) -> ModuleType | None:
    """ADMM steps on a GPU; None for factors that are elsewhere, or in float64."""
    return _loaded("admm") if fuses(H.device, H.shape[-1]) and H.dtype == torch.float32 else None


def fuses(device: torch.device, rank: int) -> bool:
    """Whether there are such kernels for that rank, and no gradients are wanted of them."""
    plain = device.type == "cuda" and rank <= _MAX_RANK and not torch.is_grad_enabled()
    return plain and _loaded("admm") is not None


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
