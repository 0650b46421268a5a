"""Compile before the tests what they need, where several processes share them: each its part.

Each would compile nearly all of it, which takes about a minute where nothing is on the disk yet, a
good part of the whole run. What one has compiled the others find on the disk.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module

import numpy as np

SINGLE, DOUBLE = (np.dtype(name) for name in ("f4", "f8"))
# In two parts that take about as long; what the second needs of the first is there by then.
KERNELS = [
    [
        ("loops", "parts"),
        ("loops", "sweeps", SINGLE),
        ("rows", "solve_rows"),
        ("rows", "solve_sums"),
    ],
    [
        ("network", "mix"),
        *[("network", name, dtype) for name in ("gather", "combine") for dtype in (SINGLE, DOUBLE)],
        *[("proximal", "entries", dtype) for dtype in (SINGLE, DOUBLE)],
        *[("shares", "steps", dtype) for dtype in (SINGLE, DOUBLE)],
    ],
]


def share() -> None:
    """Compile the part of this process, if it is one of several."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) < len(KERNELS):
        return
    number = int(worker.removeprefix("gw"))
    for name, make, *arguments in KERNELS[number] if number < len(KERNELS) else []:
        with suppress(Exception):  # which the tests of kernels are to tell
            getattr(import_module(f"factormer.kernels.{name}"), make)(*arguments)
