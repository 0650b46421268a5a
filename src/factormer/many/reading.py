"""Problems one by one: checked, and what is wrong with one is told with its number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from factormer.data import Dense, Matrix
from factormer.data.intake import aligned
from factormer.data.observations import observe
from factormer.sentence import Sentence, sentence_of

_LEAST = {dtype: float(np.finfo(dtype).tiny) for dtype in (np.dtype("f4"), np.dtype("f8"))}


@contextmanager
def naming(number: int) -> Iterator[None]:
    """Let errors begin with the number of the problem that they are about."""
    try:
        yield
    except (ValueError, TypeError) as error:
        said = Sentence("problem {number}: {said}", number=number, said=sentence_of(error))
        raise type(error)(said) from error


def read(
    V: Any,
    number: int,
    missing: str | None,
    device: torch.device | None,
    memory_limit: Any = None,
) -> Matrix:
    """One of several problems, or an error that names it."""
    if type(V) is np.ndarray and missing is None and device is None and memory_limit is None:
        plain = _plain(V)
        if plain is not None:
            return plain
    with naming(number):
        matrix = observe(V, missing=missing, device=device, memory_limit=memory_limit)
    if len(matrix.shape) != 2:
        raise ValueError(f"problem {number} has shape {matrix.shape}; it must be a matrix")
    return matrix


def _plain(V: np.ndarray) -> Dense | None:
    """Return what `observe` makes of an array without flaws, in a tenth of the time, or None."""
    least, flags = _LEAST.get(V.dtype), V.flags
    if least is None or V.ndim != 2 or V.size == 0 or not (flags.carray and min(V.strides) > 0):
        return None
    low, high = np.minimum.reduce(V, axis=None), np.maximum.reduce(V, axis=None)
    fine = low >= 0 and (least <= high < np.inf or high == 0)  # which is false for NaN
    return Dense(aligned(torch.from_numpy(V))) if fine else None
