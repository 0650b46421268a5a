"""Work on many rows shared out over threads.

Torch has its own threads, which go on spinning for a while after each operation and would fight
with ours for the cores. So within `threads()` torch keeps to one thread, and whatever is large is
cut by rows and handed to workers, each with a single-threaded torch of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from itertools import pairwise
from math import inf
from threading import Lock, local
from typing import Any, TypeVar

import torch

A = TypeVar("A")
_WORTH = 1_000_000  # multiplications that a thread should get, or it is not worth waking
_kept, _lock = local(), Lock()
_widths: dict[object, int] = {}  # for each open block: how many threads torch had when it began
_width: ContextVar[int] = ContextVar("width", default=0)  # 0: outside of any block
_most: ContextVar[float] = ContextVar("most", default=inf)  # the limit that `limited` sets


@contextmanager
def threads() -> Iterator[None]:
    """Share work out over as many threads as torch has, and let torch itself use one."""
    if _width.get():  # within another such block
        yield
        return
    width, block = _free(), object()
    try:
        with _lock:
            _widths[block] = width
        _width.set(width)
        torch.set_num_threads(1)
        yield
    finally:  # all of it, though Ctrl-C may come after any of these calls
        try:
            torch.set_num_threads(width)
        finally:
            try:
                _widths.pop(block, None)
            finally:
                _width.set(0)


def width() -> int:
    """Return over how many threads work is shared here, or would be within `threads()`."""
    return _width.get() or _free()


def _free() -> int:
    """Return how many threads torch has when no `threads()` block is open.

    While a block is open in some thread, torch may answer 1; the number noted there counts then.
    """
    with _lock:
        return (list(_widths.values()) or [torch.get_num_threads()])[0]


def most() -> float:
    """Return how many threads may work for this one at most; infinity where there is no limit."""
    return float(_most.get())


@contextmanager
def limited(count: int) -> Iterator[None]:
    """Let work be shared out over at most `count` threads."""
    token = _most.set(min(count, _most.get()))
    try:
        yield
    finally:
        _most.reset(token)


def narrow(width: int) -> None:
    """Let this thread share its work out over `width` threads, and torch in it use one."""
    _width.set(width)
    _most.set(width)
    torch.set_num_threads(1)


def share(part: Callable[[int, int], object], n: int, *, work: int) -> None:
    """Call part(start, stop) for pieces that make up range(n), at the same time where it pays.

    Workers see the context variables of the caller, so what is counted there is counted here.
    """
    width = min(_width.get(), work // _WORTH, n)
    if width <= 1:
        part(0, n)
        return
    cuts = [n * k // width for k in range(width + 1)]
    pool, pieces = _pool(width, os.getpid()), pairwise(cuts[1:])
    others = [pool.submit(copy_context().run, _alone, part, a, b) for a, b in pieces]
    try:
        part(0, cuts[1])
    finally:  # so that no thread writes into the arrays after this
        wait(others)
    for other in others:
        other.result()


def _alone(part: Callable[[int, int], object], start: int, stop: int) -> None:
    """Call part(start, stop) in a worker, which shares its work with nobody.

    Otherwise it could wait for workers that wait for it.
    """
    _width.set(1)
    part(start, stop)


def gather(part: Callable[[int, int], A], n: int, size: int, *, work: int) -> list[A]:
    """Return what part(start, stop) returns for blocks of `size` of range(n), in order."""
    starts = range(0, n, size)
    found: dict[int, A] = {}

    def some(first: int, last: int) -> None:
        for start in starts[first:last]:
            found[start] = part(start, min(start + size, n))

    share(some, len(starts), work=work)
    return [found[start] for start in starts]


@cache
def _pool(width: int, process: int) -> ThreadPoolExecutor:  # a forked process needs its own
    return ThreadPoolExecutor(width - 1, "factormer", torch.set_num_threads, (1,))


def scratch(make: Callable[..., Any], *sizes: Any) -> Any:
    """Return make(*sizes), which this thread keeps until it asks for other sizes.

    Giving large arrays back to the system and taking them again, at every call and in every
    thread, can cost more than the work in them.
    """
    kept: dict[Callable[..., Any], tuple[Any, Any]] = _kept.__dict__.setdefault("made", {})
    if make not in kept or kept[make][0] != sizes:
        kept[make] = (sizes, make(*sizes))
    return kept[make][1]
