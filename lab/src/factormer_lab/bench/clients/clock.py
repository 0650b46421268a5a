"""Seconds of the stages of a client, on the clock and of all processors."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Adds up, by stage, seconds that passed and seconds that processors worked.

    On a machine with other work the second number says more; it includes child processes that
    have ended.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.processor: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what runs in this block toward a stage."""
        begun, worked = time.perf_counter(), _worked()
        try:
            yield
        finally:
            passed = time.perf_counter() - begun
            self.seconds[name] = self.seconds.get(name, 0.0) + passed
            self.processor[name] = self.processor.get(name, 0.0) + _worked() - worked


def _worked() -> float:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))
