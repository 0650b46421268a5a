"""Rules and constants that Python, compiled code and the chip of a GPU have in common.

`is_over` is applied by Python and compiled by numba as it stands; `header` writes the constants for
CUDA, where `chip/run.cu` states the rule once more, and a law ties the two.
"""

from __future__ import annotations

from typing import Any

# Extrapolation: the first step β beyond the last iterate, and how it and its bound change.
BETA, ETA, GAMMA, GAMMA_BOUND = 0.5, 1.5, 1.05, 1.01

SHARE = 0.01  # of the mean of a component: the least entry of a start under losses with poles

# The stop by the projected gradient
EVERY = 10  # iterations between two looks
LOOKS = 5  # looks in a row without gain after which only rounding errors seem to be left
EXACT = 10  # times ε times the mean of V: the error of a fit that is exact up to rounding
NOISE = 4  # times ε‖V‖(‖W‖ + ‖H‖): a gradient that may be nothing but rounding errors (measured)
STALLED = 4  # times ε times the error: a fall of the error that is rounding
NEAR_END = 10  # times √ε times the gradient at the start: where an error that stalls is an end


def is_over(
    tol: Any, eps: Any, size: Any, start: Any, error: Any, before: Any, level: Any, norms: Any
) -> Any:
    """Return whether a run may end: for numbers, or for tensors with an entry for each of a stack.

    `size` and `start` are the projected gradient now and at the start, `error` the RMSE now and
    `before` that of `LOOKS` looks ago, infinite where there was none. `level` is the mean of V, and
    `norms` is ‖V‖(‖W‖ + ‖H‖) for the squared error, and 0 for other losses.
    """
    met = (size <= tol * start) | (error <= EXACT * eps * level) | (size <= NOISE * eps * norms)
    stalled = before - error <= STALLED * eps * error
    return met | (stalled & (size <= NEAR_END * eps**0.5 * start))


def header() -> str:
    """Return the constants as text for CUDA."""
    whole = {"EVERY": EVERY, "LOOKS": LOOKS}
    real = {
        "BETA": BETA,
        "ETA": ETA,
        "GAMMA": GAMMA,
        "GAMMA_BOUND": GAMMA_BOUND,
        "SHARE": SHARE,
        "EXACT": EXACT,
        "NOISE": NOISE,
        "STALLED": STALLED,
        "NEAR_END": NEAR_END,
    }
    lines = [f"constexpr int {name} = {value};" for name, value in whole.items()]
    lines += [f"constexpr float {name} = {float(value)!r}f;" for name, value in real.items()]
    return "\n".join(lines) + "\n"
