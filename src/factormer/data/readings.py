"""How often V was read: every pass over its entries is counted, whatever it is for.

A reading is one pass. What works on a sketch, or on other matrices of low rank, reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock


class Readings:
    """A count of passes, to which several threads may add."""

    def __init__(self) -> None:
        self.passes = 0
        self._lock = Lock()

    def add(self, passes: int) -> None:
        with self._lock:
            self.passes += passes


_count: ContextVar[Readings | None] = ContextVar("readings", default=None)


@contextmanager
def counted() -> Iterator[Readings]:
    """Count the passes within the block, also those on threads that share its work."""
    count = Readings()
    before = _count.set(count)
    try:
        yield count
    finally:
        _count.reset(before)


def add(passes: int = 1) -> None:
    """Say that V was read so many times."""
    count = _count.get()
    if count is not None:
        count.add(passes)


def so_far() -> int:
    """The passes since the innermost `counted` began; 0 outside of any."""
    count = _count.get()
    return 0 if count is None else count.passes
