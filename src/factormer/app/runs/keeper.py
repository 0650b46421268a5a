"""Keeper: watches a fit, and saves its current point from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from factormer.data.factors import Factors
from factormer.data.intake import to_numpy
from factormer.run.trace import Trace

SECONDS = 30.0  # a killed fit loses at most these, and the current iterations


class Keeper:
    """A `Watch` that calls `keep` with W, H and the trace so far, and never ends a fit.

    It looks at the clock itself, so iterations do not depend on it.
    """

    def __init__(self, keep: Callable[[np.ndarray, np.ndarray, Trace], object]) -> None:
        self._keep, self._next = keep, time.monotonic() + SECONDS

    def __call__(self, x: Factors, trace: Trace) -> bool:
        if time.monotonic() >= self._next and trace.last.iteration > 0:
            self._keep(to_numpy(x.W), to_numpy(x.H), trace)
            self._next = time.monotonic() + SECONDS
        return False
