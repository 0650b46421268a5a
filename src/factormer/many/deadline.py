"""When many jobs end before all of them are done."""

from __future__ import annotations

import time
from threading import Event


class Deadline:
    """The end of a call: at a reading of `time.perf_counter()`, or once somebody says so."""

    def __init__(self, until: float | None) -> None:
        self.until, self._ended = until, Event()

    def end(self) -> None:
        """End the call now, for all threads."""
        self._ended.set()

    def is_over(self) -> bool:
        """Whether no further job is to begin."""
        late = self.until is not None and time.perf_counter() >= self.until
        return late or self.is_ended()

    def is_ended(self) -> bool:
        """Whether somebody ended the call, whatever the time."""
        return self._ended.is_set()
