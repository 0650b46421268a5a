"""Compiled versions of hot loops, each with a slow twin in torch that its docstring names.

Each is a module that is imported when it is first needed, since that may compile. It is asked for
with the function of it that is wanted, and is None where that cannot be had, for whatever reason:
numba, or on a GPU triton, is absent, too old, too new, or may not compile. Then the slow twins do
the work, and a line of the log says so.
"""

from __future__ import annotations

import logging
import math
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_log = logging.getLogger(__name__)
_said: set[str] = set()
_SLOW = (
    "No compiled code (%s): the same is computed in torch, more slowly. To have it, mend the "
    "installation of numba, or on a GPU that of triton and CuPy."
)

# Of a kernel on a GPU: its programs hold r×r numbers, the second axis of its grid is the
# stack, and it counts entries in 32 bits.
_MAX_RANK, _MAX_STACK, _MAX_ENTRIES = 128, 2**16 - 1, 2**30


def compiled(*wanted: Any) -> ModuleType | None:
    """Sweeps of HALS, and its iterations as a whole."""
    return _loaded("loops", *wanted)


def on_chip() -> ModuleType | None:
    """Small factorizations as a whole on a GPU, one thread block each."""
    return _loaded("onchip")


def restarting() -> ModuleType | None:
    """The restart rule of compiled iterations."""
    return _loaded("restart")


def any_rank(*wanted: Any) -> ModuleType | None:
    """The any-rank accelerator."""
    return _loaded("network", *wanted)


def exact_rows(*wanted: Any) -> ModuleType | None:
    """Nonnegative least squares, row by row."""
    return _loaded("rows", *wanted)


def fused_admm(H: Tensor) -> ModuleType | None:
    """ADMM steps on a GPU; None for factors that are elsewhere, or in float64, or of high rank."""
    fits = H.dtype == torch.float32 and H.shape[-1] <= _MAX_RANK // 2  # in any card's fast memory
    return _loaded("admm") if fits and _fuses(H) else None


def fused_iteration(W: Tensor, H: Tensor) -> ModuleType | None:
    """All of an iteration but its products with V; None where `fused_admm` is, and for stacks."""
    serves = W.dim() == 2 and fused_admm(W) is not None and fused_admm(H) is not None
    return _loaded("iteration") if serves else None


def fused_sweeps(H: Tensor) -> ModuleType | None:
    """Sweeps of HALS on a GPU; None for factors that are elsewhere, and for stacks."""
    return _loaded("sweeps") if H.dim() == 2 and _fuses(H) else None


def _fuses(X: Tensor) -> bool:
    if not X.is_cuda or torch.is_grad_enabled() or X.device.index != torch.cuda.current_device():
        return False
    *stack, _, r = X.shape
    return r <= _MAX_RANK and math.prod(stack) <= _MAX_STACK and X.numel() <= _MAX_ENTRIES


def stored_entries(*wanted: Any) -> ModuleType | None:
    """The fit at stored entries of sparse data, and sums over them."""
    return _loaded("stored", *wanted)


def surveying(*wanted: Any) -> ModuleType | None:
    """Sums of rows and of their squares."""
    return _loaded("survey", *wanted)


def proximal_entries(*wanted: Any) -> ModuleType | None:
    """Proximal points of other losses, entry by entry."""
    return _loaded("proximal", *wanted)


def admm_rows(*wanted: Any) -> ModuleType | None:
    """Steps of ADMM on rows: shares, and L1."""
    return _loaded("shares", *wanted)


def real(dtype: torch.dtype) -> np.dtype:
    """Numpy's name for float32, or float64."""
    return np.dtype(np.float32 if dtype == torch.float32 else np.float64)


@cache
def _loaded(name: str, make: str | None = None, *arguments: Any) -> ModuleType | None:
    """The module, in which make(*arguments) has compiled what is wanted; None where that fails."""
    try:
        module = import_module(f"factormer.kernels.{name}")
        if make is not None:
            getattr(module, make)(*arguments)
    except Exception as error:  # whatever it is: the twins need nothing of it
        say_once(_SLOW, error)
        return None
    return module


def say_once(sentence: str, error: Exception) -> None:
    """Log a sentence, in which %s stands for the reason, unless that was done before.

    Not a warning: those who make errors of warnings would not get their factors.
    """
    if sentence not in _said:
        _said.add(sentence)
        _log.warning(sentence, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
