"""Ctrl-C and SIGTERM, held back until the current step is complete."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class HeldInterrupt:
    """While entered, a signal to stop sets `requested` instead of raising in the middle of a step.

    Signals can be held only in the main thread; elsewhere nothing is changed.
    """

    _signals = (signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> HeldInterrupt:
        self.requested = False
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._hold) for s in self._signals}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
