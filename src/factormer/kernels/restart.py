"""The restart rule of extrapolated iterations, compiled by numba into every loop that needs it.

The twin is `accelerate.base.Judged.step` with `accelerate.extrapolate.Extrapolation`; a law ties
the two. Imported where numba is present alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from factormer.kernels.compile import jit


class Rates(NamedTuple):
    """How fast the step beyond the last iterate falls after a rise, and how it and its bound grow.

    As in `Extrapolation`.
    """

    eta: float
    gamma: float
    gamma_bound: float


class Progress(NamedTuple):
    """The step β, the one before it, its bound, the error of the point kept, and what comes next.

    `plain` says whether the next iteration begins at the point kept itself.
    """

    beta: float
    last: float
    bound: float
    error: float
    plain: bool


RATES = types.NamedUniTuple(types.float64, 3, Rates)
PROGRESS = types.NamedTuple([*[types.float64] * 4, types.boolean], Progress)
# What compiled code may return of it: to make a named tuple runs Python, in which a signal handler
# may raise, and numba does not look for that.
AS_TUPLE = types.Tuple([*[types.float64] * 4, types.boolean])


@jit(inner=True)
def judged(progress, error, rates):
    """The progress after an iteration that ended at this error; its point is kept unless `plain`.

    Where the error rose, the point from before is kept; but a plain iteration is taken whatever
    comes of it, as long as that is finite.
    """
    beta, last, bound = progress.beta, progress.last, progress.bound
    rose = not (error <= progress.error)  # or is no number
    refused = rose and not (progress.plain and error < np.inf)
    if refused:
        error = progress.error
    if rose:
        return Progress(beta / rates.eta, beta, last, error, refused)
    wider = min(1.0, rates.gamma_bound * bound)
    return Progress(min(bound, rates.gamma * beta), beta, wider, error, refused)


@jit(inner=True)
def as_tuple(progress):
    """The progress as a plain tuple."""
    return (progress.beta, progress.last, progress.bound, progress.error, progress.plain)


@jit(inner=True)
def extrapolate(kept, proposed, new, beta, refused):
    """Keep the new point unless it was refused, and propose the one β beyond the last step."""
    for i in range(kept.shape[0]):
        for j in range(kept.shape[1]):
            here = kept[i, j] if refused else new[i, j]
            proposed[i, j] = here + beta * (here - kept[i, j])
            kept[i, j] = here
