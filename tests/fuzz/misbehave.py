"""A task for the tests of the pool, which does what it is told, however bad; quick to import."""

from __future__ import annotations

import os
import signal
import time


def misbehave(what: str) -> str:
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(60)
    return what
