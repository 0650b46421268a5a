"""Ctrl-C at a moment that nobody chose."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """What Ctrl-C does, at a moment that the code within does not choose.

    And again every second, as an impatient person would: Python drops an exception that is raised
    while it calls somebody's hook of the garbage collector, as hypothesis has one. A process that
    was started in the background ignores the signal; within, it does not.
    """
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, ignored)
