"""A line of pieces that are loaded in order, worked on side by side, and joined in order.

So each core has a piece of its own, and none waits for the others after each piece, as it would if
they shared it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Lock
from typing import Generic, TypeVar

import torch

from factormer.kernels.threads import narrow, threads, width

A = TypeVar("A")
B = TypeVar("B")


class Line(Generic[A, B]):
    """For each k below n, join(k, work(k, load(k, lane))).

    Loads are made one at a time and in order, and so are joins, whatever the threads do: sums are
    the same each time. A lane has one piece at a time, so that what its load has filled is free
    once its work is done.
    """

    def __init__(
        self,
        load: Callable[[int, int], A],
        work: Callable[[int, A], B],
        join: Callable[[int, B], object],
    ) -> None:
        self._load, self._work, self._join = load, work, join
        self._reading, self._turn = Lock(), Condition()
        self._begun = self._joined = 0
        self._done: dict[int, B] = {}
        self._errors: dict[int, BaseException] = {}
        self._is_over = False

    def run(self, n: int, lanes: int) -> None:
        """Make all n in so many threads; when they have ended, raise the error of the lowest k."""
        grad = torch.is_grad_enabled()  # which each thread has of its own
        each = max(width() // max(lanes - 1, 1), 1)  # one lane loads
        pool = ThreadPoolExecutor(lanes, "factormer-lane", narrow, (each,))
        with threads(), pool:
            running = [pool.submit(self._lane, k, n, lanes, grad) for k in range(lanes)]
            try:
                for lane in running:
                    lane.result()
            finally:  # Ctrl-C comes here: lanes end after what they are at
                self._is_over = True
        if self._errors:
            raise self._errors[min(self._errors)]

    def _lane(self, lane: int, n: int, lanes: int, grad: bool) -> None:
        with torch.set_grad_enabled(grad):
            while (k := self._made(lane, n, lanes + 1)) is not None:
                self._join_all(k)

    def _made(self, lane: int, n: int, ahead: int) -> int | None:
        """Load the next piece and work on it; its number, or None where there is none.

        At most `ahead` pieces may have been begun and not joined.
        """
        with self._reading:
            k = self._begun
            with self._turn:
                self._turn.wait_for(lambda: k < self._joined + ahead or self._errors)
            if k >= n or self._errors or self._is_over:
                return None
            self._begun += 1
            try:
                piece = self._load(k, lane)
            except BaseException as error:
                return self._failed(k, error)
        try:
            self._done[k] = self._work(k, piece)
        except BaseException as error:
            return self._failed(k, error)
        return k

    def _join_all(self, k: int) -> None:
        """Join what is done and has nothing missing before it."""
        with self._turn:
            try:
                while (k := self._joined) in self._done:
                    self._join(k, self._done.pop(k))
                    self._joined += 1
            except BaseException as error:
                self._errors[k] = error
            self._turn.notify_all()

    def _failed(self, k: int, error: BaseException) -> None:
        with self._turn:
            self._errors[k] = error
            self._turn.notify_all()
