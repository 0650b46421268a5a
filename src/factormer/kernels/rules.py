"""Rules of the reference that the headers of the compiled core state once more.

`tests/core/test_rules.py` compares the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Extrapolation: the first step β beyond the last iterate, and how it and its bound change.
BETA, ETA, GAMMA, GAMMA_BOUND = 0.5, 1.5, 1.05, 1.01

SHARE = 0.01  # of the mean of a component: the least entry of a start under losses with poles

# The stop by the pace of a run: core/stop.hpp
LOOK_EVERY, FIRST_LOOK = 5, 10  # iterations between two looks, and before the first
BACK_OF, BACK_IN = 17, 20  # the gain since iteration ⌊17t/20⌋ is judged
GAIN_SHARE = 0.3  # of tol, which the last 15 % of a run gain if half as much again gains all of it
NOISE = 1e-6  # of the least error: how far above it the last one may be, for rounding, at any tol
EXACT = 10  # times ε times the mean of V: the error of a fit that is exact up to rounding
NONE = 1e-3  # of tol, times the mean of V: an error that counts as none


def exact_below(tol: float, eps: float) -> float:
    """Return the error, over the mean of V, at which a fit counts as exact."""
    return max(EXACT * eps, NONE * tol)


def has_settled(errors: np.ndarray, tol: float) -> Any:
    """Return whether half as many iterations again would gain no more than `tol` of the error.

    `errors` (T + 1, *b) are those of 0, 1, … iterations, of one run or of each of a stack. The
    gain is judged by the pace of the last 15 % of the run, and looked at every few iterations. It
    is that of the least error so far; where the error is above it, the run goes on.
    """
    t = len(errors) - 1
    if t < FIRST_LOOK or t % LOOK_EVERY:
        return np.zeros(errors.shape[1:], bool)
    least = np.fmin.accumulate(errors)
    then, now, allowed = least[t * BACK_OF // BACK_IN], least[t], GAIN_SHARE * tol * least[t]
    with np.errstate(invalid="ignore"):  # infinite errors have not settled
        return (then - now <= allowed) & (errors[t] - now <= np.maximum(allowed, NOISE * now))
