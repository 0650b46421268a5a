"""Factorizations at every rank, from several starts each, as evidence for the rank.

Shapes: m rows, n columns, r components, s starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.data.svd import OVERSAMPLING
from factormer.functions import factorize_many
from factormer.run.choose import choose
from factormer.run.execute import execute
from factormer.run.request import Request
from factormer.run.result import Result
from factormer.select.ranks.spectrum import FLOOR, flipped_norm, norm
from factormer.select.ranks.view import View

N_STARTS = 3
MAX_ITER = 50  # enough to see how errors fall; the answer is fitted again
TINY = 1e-12
_WIDTH = 4  # columns of a sketch for each component: its fits end within a percent of those of V


class Fits(NamedTuple):
    """For each rank that was fitted, the factors of all starts, the best first."""

    runs: Mapping[int, Sequence[Factors]]
    errors: Mapping[int, Sequence[float]]  # sums of squares, in the same order


class Row(NamedTuple):
    """One rank in numbers.

    `error` is the least sum of squares. `left` and `left_scaled` compare the norm of the residual,
    and of the residual over the root of the fit, with those of the same numbers with random signs:
    above 1, structure is left. `stability` are the cosines of components matched between starts
    (mean, least, median), `overlap` the largest cosines of two components of the best start (of
    their parts of V, of columns of W, of columns of H), `share` the smallest component relative to
    the mean and to the largest, `spread` the errors of the worst start relative to the best, and
    `kept` how well components of the rank before are found again (mean, least).
    """

    error: float
    left: float
    left_scaled: float
    stability: tuple[float, float, float]
    overlap: tuple[float, float, float]
    share: tuple[float, float]
    spread: float
    kept: tuple[float, float]


def fitted(
    view: View, ranks: Sequence[int], *, n_starts: int, seed: int, rng: torch.Generator
) -> Fits:
    """Factorize at all ranks, from several random starts each, as one batch; or its sketch."""
    results = _all(view, ranks, n_starts, seed, rng)
    m, n = view.shape
    runs, errors = {}, {}
    for place, rank in enumerate(ranks):
        some = results[place * n_starts : (place + 1) * n_starts]
        some = sorted(some, key=lambda result: float(result.error))
        runs[rank] = [result.factors for result in some]
        errors[rank] = [float(result.error) ** 2 * m * n for result in some]
    return Fits(runs, errors)


def _all(
    view: View, ranks: Sequence[int], n_starts: int, seed: int, rng: torch.Generator
) -> Sequence[Result]:
    options: dict[str, Any] = {"init": "random", "max_iter": MAX_ITER, "tol": 0}
    if view.is_small:
        return factorize_many(
            view.block, list(ranks), n_init=n_starts, random_state=seed, **options
        )
    V = view.compressed(_WIDTH * max(ranks) + OVERSAMPLING, rng)
    jobs = [(rank, seed + k) for k, rank in enumerate(np.repeat(list(ranks), n_starts).tolist())]
    requests = [Request.of(V, rank, random_state=own, **options) for rank, own in jobs]
    return [execute(choose(request))[0] for request in requests]


def rows(view: View, fits: Fits, rng: torch.Generator) -> dict[int, Row]:
    """The numbers of each rank."""
    ranks, X = list(fits.runs), view.block
    best = [fits.runs[rank][0] for rank in ranks]
    approximations = torch.stack(
        [(x.W[view.rows] @ x.H[view.columns].mT).float() for x in best]
    )  # (t, m, n)
    E = X.float() - approximations
    floor = FLOOR * float(X.norm())
    least = (FLOOR**2) * view.total
    left = _structure(E, floor, rng)
    scaled = E / (approximations + 0.05 * X.mean().float()).sqrt()
    left_scaled = _structure(scaled, floor / float(X.mean()) ** 0.5, rng)
    found, before = {}, None
    for place, (rank, x) in enumerate(zip(ranks, best, strict=True)):
        parts, errors = _units(x), fits.errors[rank]
        found[rank] = Row(
            error=max(errors[0], least),
            left=left[place],
            left_scaled=left_scaled[place],
            stability=_stability([_units(run) for run in fits.runs[rank]]),
            overlap=_overlap(parts),
            share=_share(x),
            spread=max(errors[-1], least) / max(errors[0], least),
            kept=(1.0, 1.0) if before is None else _kept(before, parts),
        )
        before = parts
    return found


def _structure(E: Float[Tensor, "t m n"], floor: float, rng: torch.Generator) -> list[float]:
    """The norm of each residual over its norm with random signs."""
    noise = flipped_norm(E, rng).clamp(min=floor)
    return (norm(E, rng).clamp(min=floor) / noise).tolist()


def _units(x: Factors) -> Factors:
    return Factors(*(F.double() / F.double().norm(dim=0).clamp(min=TINY) for F in x))


def _cosines(x: Factors, y: Factors) -> Float[Tensor, "r q"]:
    """Of the parts w hᵀ of V."""
    return (x.W.mT @ y.W) * (x.H.mT @ y.H)


def _stability(runs: Sequence[Factors]) -> tuple[float, float, float]:
    if len(runs) < 2:
        return 1.0, 1.0, 1.0
    matched = []
    for a in range(len(runs)):
        for b in range(a):
            cosines = _cosines(runs[a], runs[b])
            matched += [cosines.amax(0), cosines.amax(1)]
    all_of_them = torch.cat(matched)
    return float(all_of_them.mean()), float(all_of_them.min()), float(all_of_them.median())


def _overlap(x: Factors) -> tuple[float, float, float]:
    if x.W.shape[1] == 1:
        return 0.0, 0.0, 0.0
    grams = x.W.mT @ x.W, x.H.mT @ x.H
    rest = 1 - torch.eye(x.W.shape[1], dtype=x.W.dtype)
    whole, left, right = (
        float((gram * rest).max()) for gram in (grams[0] * grams[1], grams[0], grams[1])
    )
    return whole, left, right


def _share(x: Factors) -> tuple[float, float]:
    sizes = x.W.double().norm(dim=0) * x.H.double().norm(dim=0)
    least = float(sizes.min())
    return least / max(float(sizes.mean()), TINY), least / max(float(sizes.max()), TINY)


def _kept(before: Factors, x: Factors) -> tuple[float, float]:
    matched = _cosines(before, x).amax(1)
    return float(matched.mean()), float(matched.min())
