"""Rows of a file of numbers: where the system has them in its cache, mapped; else read.

To read what is in the cache is to copy it, which takes a third of the time of the products with it,
and a map of it takes next to nothing. A map of what is not in the cache is read page by page, each
of which the thread waits for: several times more slowly than the file.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

_PROBE = 2**18  # bytes between two places that are looked up in the cache
_POPULATE = 22  # MADV_POPULATE_READ, since Linux 5.14: all pages of a map at once
_MAPS = sys.platform == "linux" and hasattr(os, "RWF_NOWAIT")

Take = Callable[[int, int, np.ndarray], np.ndarray]


def rows_of(V: np.memmap) -> Take | None:
    """How to take rows from the file of a memory map; None where that may not be the same.

    take(a, b, room) returns rows a … b, which are `room` or a map, and not to be written to.
    """
    whole = V.flags.c_contiguous and V.dtype.isnative and V.mode != "c" and len(V)
    if not (whole and hasattr(os, "preadv") and isinstance(V.filename, str | os.PathLike)):
        return None
    base: Any = V._mmap  # pyright: ignore[reportAttributeAccessIssue]
    first, here = (np.frombuffer(base, np.uint8, 1).ctypes.data, V.ctypes.data)
    begin = V.offset - V.offset % mmap.ALLOCATIONGRANULARITY + here - first
    row = V.shape[1] * V.dtype.itemsize
    try:
        file = os.open(V.filename, os.O_RDONLY)
    except OSError:
        return None

    def take(a: int, b: int, room: np.ndarray) -> np.ndarray:
        start = begin + a * row
        if _is_cached(file, start, room.nbytes):
            with suppress(OSError, ValueError):  # no such advice here, or the file was cut just now
                return _mapped(file, start, room.nbytes).view(room.dtype).reshape(room.shape)
        _read(file, start, room)
        return room

    weakref.finalize(take, os.close, file)
    ends = np.empty((2, V.shape[1]), V.dtype)
    with suppress(OSError):
        for k, at in enumerate((0, len(V) - 1)):
            _read(file, begin + at * row, ends[k : k + 1])
        if ends.tobytes() == V[[0, -1]].tobytes():  # else it is another file of the same name
            return take
    return None


def _is_cached(file: int, start: int, size: int) -> bool:
    """Whether the system has these bytes in its cache, as far as some of them tell."""
    if not _MAPS or size < _PROBE:
        return False
    byte = bytearray(1)
    try:
        places = (*range(start, start + size, _PROBE), start + size - 1)
        return all(os.preadv(file, [byte], at, os.RWF_NOWAIT) for at in places)
    except OSError:  # not there, or the file system does not tell
        return False


def _mapped(file: int, start: int, size: int) -> np.ndarray:
    """These bytes, in a map that ends with the array."""
    before = start % mmap.ALLOCATIONGRANULARITY
    pages = mmap.mmap(file, before + size, access=mmap.ACCESS_COPY, offset=start - before)
    pages.madvise(_POPULATE)
    return np.frombuffer(pages, np.uint8, size, before)


def _read(file: int, start: int, room: np.ndarray) -> None:
    """Read them into an array."""
    left = room.data.cast("B")
    while left:
        count = os.preadv(file, [left], start)
        if not count:
            raise OSError("the file ends before the matrix does")
        left, start = left[count:], start + count
