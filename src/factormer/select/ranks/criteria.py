"""Classical rules for the number of components, as they stand in the literature.

Each gives a number for every rank, and the rank that its rule takes.
Shapes: k ranks that were fitted, m rows and n columns of V.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from factormer.data import Matrix
from factormer.select.ranks.curves import Curves
from factormer.select.ranks.fits import TINY
from factormer.select.ranks.spectrum import FLOOR, singular_values
from factormer.select.validate import cross_validate

STABLE = 0.8  # mean cosine from which components count as stable
HIDING: dict[str, Any] = {"n_folds": 3, "max_iter": 200, "tol": 1e-4}  # of cross_validate


class Criterion(NamedTuple):
    """A rule: its value for each rank, the rank that it takes, and the rule in words."""

    values: Float[np.ndarray, "k"]
    rank: int
    rule: str


def criteria(found: Curves, ranks: Sequence[int], *, counts: bool) -> dict[str, Criterion]:
    """All rules that need no further fits; with `counts`, the variance of noise is known."""
    unit = found.view.unit if counts else 1.0
    errors = unit * np.array([found.rows[rank].error for rank in ranks])
    m, n = found.view.shape
    stability = np.array([found.rows[rank].stability[0] for rank in ranks])
    s = found.spectra[1 if counts else 0]
    held = s.held.numpy()[[min(rank, len(s.held) - 1) for rank in ranks]]
    return {
        "BIC": bic(errors, ranks, m, n, counts=counts),
        "description length": description_length(found, ranks, counts=counts),
        "singular value threshold": singular_value_threshold(found, ranks, counts=counts),
        "bi-cross-validation": _least(held, ranks, "least error on blocks held out"),
        "stability": most_stable(stability, ranks),
        "elbow": elbow(errors, ranks),
    }


def bic(
    errors: Float[np.ndarray, "k"], ranks: Sequence[int], m: int, n: int, *, counts: bool = False
) -> Criterion:
    """Schwarz's criterion: mn log(error / mn) + r (m + n) log(mn); the error itself for counts.

    `errors` are sums of squares; those of counts are of Pearson residuals, whose variance is 1.
    """
    size = m * n
    misfit = errors if counts else size * np.log(np.maximum(errors, TINY) / size)
    values = misfit + np.asarray(ranks) * (m + n) * math.log(size)
    return _least(values, ranks, "least value of Schwarz's criterion")


def description_length(found: Curves, ranks: Sequence[int], *, counts: bool = False) -> Criterion:
    """Nats to write down the residual and the factors, in two parts (Rissanen, 1978).

    The residual is Gaussian. Entries of W are exponential with the mean of their column, written as
    exactly as noise lets them be known: to σ/‖h_c‖ for the component c, likewise those of H.
    """
    m, n = found.view.shape
    values = []
    for rank in ranks:
        W, H = found.fits.runs[rank][0]
        error = found.rows[rank].error
        sigma = found.view.unit**-0.5 if counts else math.sqrt(error / (m * n))
        residual = error / sigma**2 / 2 if counts else m * n * math.log(max(sigma, TINY))
        nats = sum(
            len(A) * float((1 + (A.mean(0) * B.norm(dim=0) / sigma).log().clamp(min=0)).sum())
            for A, B in ((W.double(), H.double()), (H.double(), W.double()))
        )
        values.append(residual + nats)
    return _least(np.array(values), ranks, "shortest description of residual and factors")


def singular_value_threshold(
    found: Curves, ranks: Sequence[int], *, counts: bool = False
) -> Criterion:
    """Count the singular values above ω(β) times their median (Gavish and Donoho, 2014).

    For counts: those of V balanced to noise of variance σ² that are above σ(√m + √n).
    """
    m, n = found.view.shape
    s = found.spectra[1 if counts else 0].values.numpy()
    values = np.array([s[min(rank, len(s)) - 1] for rank in ranks])
    if counts:
        limit = (math.sqrt(m) + math.sqrt(n)) / math.sqrt(found.view.unit)
        rule = "singular values above that of the noise of counts"
    else:
        beta = min(m, n) / max(m, n)
        omega = 0.56 * beta**3 - 0.95 * beta**2 + 1.82 * beta + 1.43
        block = found.view.block.double()
        median = float(singular_values(block).median()) * found.view.growth
        limit, rule = omega * median, "singular values above a multiple of their median"
    number = int((s > max(limit, FLOOR * float(s[0]))).sum())
    return Criterion(values / max(limit, TINY), _nearest(number, ranks), rule)


def most_stable(stability: Float[np.ndarray, "k"], ranks: Sequence[int]) -> Criterion:
    """The largest rank whose components are found again from other starts."""
    stable = [rank for rank, value in zip(ranks, stability, strict=True) if value >= STABLE]
    rule = f"largest rank with components that agree to {STABLE} between starts"
    return Criterion(stability, max(stable, default=min(ranks)), rule)


def elbow(errors: Float[np.ndarray, "k"], ranks: Sequence[int]) -> Criterion:
    """The rank at which the fall of the logarithm of the error slows down most."""
    logs, at = np.log(np.maximum(errors, TINY)), np.asarray(ranks, float)
    bend = np.zeros(len(logs))
    if len(logs) > 2:
        falls = np.diff(logs) / np.diff(at)
        bend[1:-1] = np.diff(falls)
    return Criterion(bend, int(ranks[int(bend.argmax())]), "sharpest bend of the error")


def cross_validated(V: Matrix, ranks: Sequence[int], *, loss: Any, seed: int) -> Criterion:
    """The mean loss of entries hidden at random, which takes fits of its own.

    Noise makes the least error wander to larger ranks, so the smallest rank that is as good counts.
    """
    found = cross_validate(V, ranks, loss=loss, random_state=seed, **HIDING)
    rule = "smallest rank whose hidden entries have a loss within one standard error of the least"
    return Criterion(found.mean, found.rank_1se, rule)


def _least(values: Float[np.ndarray, "k"], ranks: Sequence[int], rule: str) -> Criterion:
    return Criterion(values, int(ranks[int(np.argmin(values))]), rule)


def _nearest(number: int, ranks: Sequence[int]) -> int:
    return min(ranks, key=lambda rank: (abs(rank - number), rank))
