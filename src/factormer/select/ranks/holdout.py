"""Speckled cross-validation: entries hidden at random, and how well each rank predicts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from factormer.functions import factorize_many
from factormer.select.ranks.criteria import Criterion

_HELD, _FOLDS = 0.1, 3


def cross_validated(
    V: np.ndarray, ranks: Sequence[int], *, loss: Any, known: np.ndarray, seed: int
) -> Criterion:
    """The root mean square error of hidden entries, relative to V; the rank with the least."""
    rng = np.random.default_rng(seed)
    folds = [(rng.random(V.shape) < _HELD) & known for _ in range(_FOLDS)]
    masked = [np.where(hidden | ~known, np.nan, V) for hidden in folds]
    jobs = [(fold, rank) for fold in range(_FOLDS) for rank in ranks]
    results = factorize_many(
        [masked[fold] for fold, _ in jobs],
        [rank for _, rank in jobs],
        loss=loss,
        random_state=seed,
    )
    size = float(np.sqrt(np.mean(V[known] ** 2)))
    errors = np.zeros((_FOLDS, len(ranks)))
    for (fold, rank), result in zip(jobs, results, strict=True):
        E = (np.asarray(result.W) @ np.asarray(result.H).T - V)[folds[fold]]
        errors[fold, list(ranks).index(rank)] = np.sqrt(np.mean(E**2)) / size if E.size else 0.0
    values = errors.mean(0)
    return Criterion(values, int(ranks[int(values.argmin())]), "least error of hidden entries")
