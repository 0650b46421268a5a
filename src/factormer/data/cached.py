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

_PROBE = 2**18  # bytes of a block between two places that are looked up in the cache
_PLACES = 64  # of the whole file, which are looked up before a pass
_AHEAD = 3  # blocks that are on their way into the cache, if it does not have them
_ASKED = 2**20  # bytes that the system is asked for at a time: there is a limit to it
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
        file, probe = os.open(V.filename, os.O_RDONLY), os.open(V.filename, os.O_RDONLY)
    except OSError:
        return None

    whole = (begin, len(V) * row)
    is_mapped, asked = [False], [0]  # in this pass

    def take(a: int, b: int, room: np.ndarray) -> np.ndarray:
        start = begin + a * row
        if not a:
            is_mapped[0] = _is_cached(probe, *whole, len(V) * row // _PLACES)
        if is_mapped[0]:
            is_mapped[0] = _is_cached(probe, start, room.nbytes, _PROBE)
        if is_mapped[0]:
            with suppress(OSError, ValueError):  # no such advice here, or the file was cut just now
                return _mapped(file, start, room.nbytes).view(room.dtype).reshape(room.shape)
        asked[0] = _ask(file, max(start, asked[0] if a else 0), start + _AHEAD * room.nbytes)
        _read(file, start, room)
        return room

    for opened in (file, probe):
        weakref.finalize(take, os.close, opened)
    ends = np.empty((2, V.shape[1]), V.dtype)
    with suppress(OSError):
        for k, at in enumerate((0, len(V) - 1)):
            _read(file, begin + at * row, ends[k : k + 1])
        if ends.tobytes() == V[[0, -1]].tobytes():  # else it is another file of the same name
            return take
    return None


def _is_cached(file: int, start: int, size: int, step: int) -> bool:
    """Whether the system has these bytes in its cache, as far as one in so many of them tells.

    To ask for what is not there is a reading to the system, after which it no longer reads ahead of
    others as it should: so a pass over a file that is not in the cache asks once, on a descriptor
    of its own.
    """
    if not _MAPS or size < _PROBE:
        return False
    byte = bytearray(1)
    try:
        places = (*range(start, start + size, max(step, 1)), start + size - 1)
        return all(os.preadv(file, [byte], at, os.RWF_NOWAIT) for at in places)
    except OSError:  # not there, or the file system does not tell
        return False


def _ask(file: int, start: int, stop: int) -> int:
    """Let the system read these bytes into its cache, and do not wait for it; how far it was asked.

    A thread that reads waits for each part of a block, and where all cores have work, each time for
    a core: so there is always more on its way than a block.
    """
    if hasattr(os, "posix_fadvise"):
        for at in range(start, stop, _ASKED):
            os.posix_fadvise(file, at, min(_ASKED, stop - at), os.POSIX_FADV_WILLNEED)
    return max(start, stop)


def _mapped(file: int, start: int, size: int) -> np.ndarray:
    """Map bytes of a file into memory, as an array that ends with the map."""
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
