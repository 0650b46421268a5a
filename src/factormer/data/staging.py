"""Rooms for blocks of rows: in memory, or with a second one on a device to which they travel.

A block is read into memory that cannot be swapped out, and copied from there on a stream of its
own, while the device works on another block.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Here:
    """A room in memory: what is read into it is worked on where it is."""

    def __init__(self, rows: int, n: int, kind: np.dtype) -> None:
        self.host = _fresh(rows * n, kind).reshape(rows, n)

    def emptied(self) -> np.ndarray:
        """The room, into which the next block may be read."""
        return self.host

    def sent(self, block: Any) -> Any:
        """The block where it is worked on; it may still be on its way."""
        return block

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within, the block has arrived; after it, another one may take its place."""
        yield


class Entries(Here):
    """Staging for the entries of sparse rows and their columns, side by side."""

    def __init__(self, count: int, kind: np.dtype, index: np.dtype) -> None:
        self.pair = _fresh(count, kind), _fresh(count, index)


class There:
    """A room in memory and one on a device."""

    def __init__(self, rows: int, n: int, dtype: torch.dtype, device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"
        host = torch.empty(rows, n, dtype=dtype, pin_memory=self.on_gpu)
        self.host, self._host = host.numpy(), host
        self.there = torch.empty(rows, n, dtype=dtype, device=device)
        if self.on_gpu:
            self._sent, self._used = torch.cuda.Event(), torch.cuda.Event()
            self._used.record(torch.cuda.current_stream(device))

    def emptied(self) -> np.ndarray:
        """The room in memory, once what was in it has left."""
        if self.on_gpu:
            self._sent.synchronize()
        return self.host

    def sent(self, block: Tensor) -> Tensor:
        """The block on the device; it may still be on its way."""
        rows, there = len(block), self.there[: len(block)]
        source = self._host[:rows]
        if block.data_ptr() != source.data_ptr():  # in the file cache, say
            source.copy_(block)
        if not self.on_gpu:
            return there.copy_(source)
        copies = _copies(self.device)
        with torch.cuda.stream(copies):
            copies.wait_event(self._used)
            there.copy_(source, non_blocking=True)
            self._sent.record(copies)
        return there

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within, the block has arrived; after it, another one may take its place."""
        with torch.cuda.device(self.device) if self.on_gpu else nullcontext():
            if self.on_gpu:
                torch.cuda.current_stream(self.device).wait_event(self._sent)
            yield
            if self.on_gpu:
                self._used.record(torch.cuda.current_stream(self.device))


def _fresh(count: int, kind: np.dtype) -> np.ndarray:
    """Memory straight from the system, to which it goes back as a whole.

    What an allocator gets back it keeps, in holes between what came later.
    """
    size = max(count * kind.itemsize, 1)
    how = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
    return np.frombuffer(mmap.mmap(-1, size, **how), kind, count)


@cache
def _copies(device: torch.device) -> torch.cuda.Stream:
    """The stream on which blocks travel."""
    return torch.cuda.Stream(device)
