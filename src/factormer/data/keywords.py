"""Keywords that many functions have: the rank, the seed, when to stop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from factormer.data.base import Matrix
from factormer.data.memory import memory
from factormer.sentence import Sentence

_REAL = (int, float, np.integer, np.floating)


def as_seed(seed: Any) -> int | None:
    """A whole number that fits in 63 bits, or None."""
    if seed is None:
        return None
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**63:
        raise ValueError(
            Sentence(
                "{random_state} is {given!r}; it must be a whole number from 0 to 2**63 - 1, or "
                "None",
                given=seed,
            )
        )
    return int(seed)


def as_rank(rank: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or not 1 <= rank < 2**63:
        raise ValueError(
            Sentence(
                "{rank} is {given!r}; it must be a whole number of at least 1, and small enough "
                "that the factors fit into memory",
                given=rank,
            )
        )
    return int(rank)


def is_finite(value: Any) -> bool:
    """Whether this is a real number that a float can hold; no sequence, text or infinity."""
    try:
        return isinstance(value, _REAL) and math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def check_room(V: Matrix, rank: int) -> None:
    """W, H and WᵀW have to fit into the memory of the machine or GPU, before any is made."""
    *batch, m, n = V.shape
    size = math.prod(batch) * ((m + n) * rank + rank**2) * V.dtype.itemsize
    on_gpu = V.device.type == "cuda"
    room = float(torch.cuda.mem_get_info(V.device)[1]) if on_gpu else memory()
    if size > room:
        raise ValueError(
            Sentence(
                "{rank} is {given}; for V of {m}×{n} its factors and their products take "
                "{size:.2g} bytes of memory, of {room:.2g} available: choose a lower rank (rank "
                "{most} describes any matrix of this shape)",
                given=rank,
                m=m,
                n=n,
                size=size,
                room=room,
                most=min(m, n),
            )
        )


def check_limits(max_iter: Any, tol: Any, time_limit: Any) -> None:
    """Check when to stop."""
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer) or max_iter < 0:
        raise ValueError(
            Sentence(
                "{max_iter} is {given!r}; it must be a whole number of at least 0", given=max_iter
            )
        )
    if not is_finite(tol) or tol < 0:
        raise ValueError(
            Sentence(
                "{tol} is {given!r}; it must be at least 0 (0: run all of {max_iter}), and finite",
                given=tol,
            )
        )
    endless = isinstance(time_limit, float) and time_limit == math.inf
    if time_limit is not None and not endless and not (is_finite(time_limit) and time_limit > 0):
        raise ValueError(
            Sentence(
                "{time_limit} is {given!r}; it must be a positive number of seconds, or None",
                given=time_limit,
            )
        )


def check_callable(name: str, value: Any) -> None:
    """A function to call, or None."""
    if value is not None and not callable(value):
        raise ValueError(f"{name} is {value!r}; it must be a function to call, or None")
