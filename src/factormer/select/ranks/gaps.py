"""Unknown entries, filled in so that curves over ranks can be drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from factormer.data import Dense, Observed, Sparse
from factormer.functions import factorize
from factormer.sentence import Sentence

_MOST = 10_000_000  # entries of a V with gaps


def known_entries(
    V: Observed,
) -> tuple[Float[np.ndarray, "m n"], Bool[np.ndarray, "m n"]]:
    """The entries as an array, and which of them are known; rows and columns without any are left
    out.
    """
    m, n = V.shape
    if m * n > _MOST:
        raise ValueError(
            f"V is {m}×{n} with unknown entries; a rank is chosen for at most {_MOST:.0e} entries "
            "then: pass a random part of its rows and columns"
        )
    if isinstance(V.V, Dense):
        entries, weights = V.V.entries, V.weights
    else:
        ((_, entries),) = V.V.blocks(None)
        ((_, weights),) = Sparse(replace(V.V.by_rows, values=V.weights)).blocks(None)
    known = (weights > 0).cpu().numpy()
    if np.unique(weights.cpu().numpy()[known]).size > 1:
        raise ValueError(
            Sentence(
                "a rank is chosen for entries that count the same, and these have different "
                "weights; pass a {mask} of those that are known"
            )
        )
    values = np.where(known, entries.double().cpu().numpy(), 0.0)
    rows, columns = known.any(1), known.any(0)
    return values[rows][:, columns], known[rows][:, columns]


def first_guess(
    V: Float[np.ndarray, "m n"], known: Bool[np.ndarray, "m n"]
) -> Float[np.ndarray, "m n"]:
    """V with the product of the means of row and column, over the mean, where it is not known."""
    by_row, by_column = (V.sum(axis) / known.sum(axis) for axis in (1, 0))
    mean = max(V.sum() / known.sum(), np.finfo(float).tiny)
    return np.where(known, V, np.outer(by_row, by_column) / mean)


def better_guess(
    V: Float[np.ndarray, "m n"], known: Bool[np.ndarray, "m n"], rank: int, loss: Any, seed: int
) -> Float[np.ndarray, "m n"]:
    """V with what a factorization of the known entries says of the others."""
    result = factorize(V, rank, mask=known, loss=loss, random_state=seed)
    return np.where(known, V, result.W @ result.H.T)


def as_data(V: Float[np.ndarray, "m n"]) -> Dense:
    """An array as the curves take it."""
    return Dense(torch.from_numpy(np.ascontiguousarray(V)))
