"""HALS sweeps compiled for the CPU; the slow twin is `solvers.hals.sweep`.

A sweep goes through the components in order, but rows are independent: 64 of them at a time lie
side by side in the lanes of the processor, and stay in its cache for all sweeps. Where numba is
absent there is no kernel, and the twin does the work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache

import numpy as np

_ROWS = 64  # worked on at once: a few vectors of every width that processors have


def _sweeps(G, Ft, Xt, n_sweeps, flat):
    """Improve Xt (r, n) in place by n_sweeps of coordinate descent on ½⟨X G, X⟩ − ⟨F, X⟩, X ≥ 0.

    Components whose curvature G_cc is at most `flat` are left as they are.
    """
    r, n = Xt.shape
    step = np.empty(_ROWS, Xt.dtype)
    b = np.zeros((r, _ROWS), Xt.dtype)  # F − X G of the rows in hand
    x = np.zeros((r, _ROWS), Xt.dtype)
    for start in range(0, n, _ROWS):
        width = min(_ROWS, n - start)
        for c in range(r):
            for j in range(width):
                b[c, j] = Ft[c, start + j]
                x[c, j] = Xt[c, start + j]
        for c in range(r):
            for k in range(r):
                g = G[c, k]
                for j in range(_ROWS):
                    b[k, j] -= x[c, j] * g
        for _ in range(n_sweeps):
            for c in range(r):
                if G[c, c] <= flat:
                    continue
                scale = 1 / G[c, c]
                for j in range(_ROWS):
                    step[j] = max(b[c, j] * scale, -x[c, j])
                    x[c, j] += step[j]
                for k in range(r):
                    g = G[c, k]
                    for j in range(_ROWS):
                        b[k, j] -= step[j] * g
        for c in range(r):
            for j in range(width):
                Xt[c, start + j] = x[c, j]


@cache
def sweeps() -> Callable[[np.ndarray, np.ndarray, np.ndarray, int, float], None] | None:
    """The compiled kernel, or None where numba is absent."""
    try:
        import numba
    except ImportError:
        return None
    exact_enough = {"contract", "reassoc", "nsz"}  # NaN and infinity keep their meaning
    return numba.njit(fastmath=exact_enough, nogil=True, cache=True)(inspect.unwrap(_sweeps))
