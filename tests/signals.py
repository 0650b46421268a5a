"""Ctrl-C at a moment that nobody chose."""

import _weakrefset
import pathlib
import signal
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LATER = (weakref.__file__, _weakrefset.__file__, pathlib.__file__)


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """What Ctrl-C does, at a moment that the code within does not choose.

    And again every second, as an impatient person would: Python drops an exception that is raised
    while it calls somebody's hook of the garbage collector, as hypothesis has one. A process that
    was started in the background ignores the signal; within, it does not. Where a weak reference
    ends, as in the tables of the shape checks, Python would drop the exception too, and pytest
    reports that; so it does where a file was opened that nobody holds yet. There it comes a
    millisecond later.
    """

    def interrupt(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename in _LATER:
            signal.setitimer(signal.ITIMER_REAL, 1e-3, 1.0)
        else:
            signal.raise_signal(signal.SIGINT)

    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, ignored)
