"""Ctrl-C while the command is still loading: one line and exit code 130, without a traceback.

Programs that import the package are left alone: only `factormer` and `python -m factormer` are the
command. `factormer.app.cli.main` takes over when everything is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import FrameType

INTERRUPTED = 130
_NAME = "factormer"


def is_command() -> bool:
    """Whether this process is the command, and nothing else."""
    arguments = sys.orig_argv
    as_module = ("-m", _NAME) in pairwise(arguments) and sys.argv[0] == "-m"
    return as_module or Path(sys.argv[0]).stem == _NAME


def begin() -> None:
    """Handle Ctrl-C, if this process is the command."""
    is_ours = threading.current_thread() is threading.main_thread() and is_command()
    if is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def end() -> None:
    """Restore Python's handling of Ctrl-C."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"factormer: interrupted\n")
    os._exit(INTERRUPTED)


begin()
