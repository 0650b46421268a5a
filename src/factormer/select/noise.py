"""How the variance of residuals grows with the mean: a power law, from hidden entries.

Hidden entries are predicted by a fit that has not seen them, so prediction and noise are
independent. Sorted by prediction and cut into bins, they give the mean and the variance at several
levels, without any bias by the selection; the slope between their logarithms is the power p in
variance ∝ meanᵖ. A β-divergence describes p = 2 − β (Tweedie, 1984).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_PER_BIN = 50  # entries, about
_BINS = (8, 40)  # least and most
_ROUNDS = 20  # of reweighting
_HUBER = 1.345  # standard deviations from which a bin counts less


class Levels(NamedTuple):
    """Mean and variance of hidden entries, bin by bin."""

    mean: Float[np.ndarray, " b"]
    variance: Float[np.ndarray, " b"]


class Law(NamedTuple):
    """variance ≈ factor · meanᵖ, p with its standard error."""

    power: float
    error: float
    factor: float


def levels_of(v: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"]) -> Levels:
    """Entries v and predictions y, in bins of about equal size; bins without variance are left."""
    count = int(np.clip(len(v) // _PER_BIN, *_BINS))
    order = np.argsort(y, kind="stable")
    means, variances = [], []
    for at in np.array_split(order, count):
        if len(at) > 1:
            means.append(float(v[at].mean()))
            variances.append(float((v[at] - y[at]).var(ddof=1)))
    mean, variance = np.array(means), np.array(variances)
    fine = (mean > 0) & (variance > 0)
    return Levels(mean[fine], variance[fine])


def law_of(levels: Levels) -> Law:
    """The line through the logarithms, in which bins far from it count less (Huber)."""
    x, y = np.log(levels.mean), np.log(levels.variance)
    weight = np.ones_like(x)
    slope = level = spread = across = 0.0
    for _ in range(_ROUNDS):
        centre, level = np.average(x, weights=weight), np.average(y, weights=weight)
        across = np.maximum((weight * (x - centre) ** 2).sum(), np.finfo(float).tiny)
        slope = (weight * (x - centre) * (y - level)).sum() / across
        level -= slope * centre
        residual = np.abs(y - level - slope * x)
        spread = 1.4826 * np.median(residual)
        weight = _HUBER * spread / np.maximum(residual, max(_HUBER * spread, 1e-12))
        spread = max(float(spread), 1e-12)
    return Law(float(slope), float(spread / np.sqrt(across)), float(np.exp(level)))
