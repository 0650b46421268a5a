"""Components of several runs: which belong together, which runs are unlike all others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment

_COMPARED = 100  # runs, at most, that each run is compared with
_NEAREST = 0.3  # share of the other runs that count as neighbours (Kotliar et al., 2019)
_FAR = 3.0  # robust standard deviations above the median from which a run is an outlier,
_LEAST = 0.1  # unless its neighbours are as near as this
_ROUNDS = 20  # of matching runs to centres, and moving these


class Clusters(NamedTuple):
    """Components of runs, matched: those of cluster c are columns[:, c] of the runs kept."""

    kept: Bool[np.ndarray, " k"]
    medoid: int
    columns: Int[np.ndarray, "kept r"]
    centres: Float[np.ndarray, "n r"]
    stability: Float[np.ndarray, " r"]
    cosine: Float[np.ndarray, " r"]


def clustered(H: Float[np.ndarray, "k n r"]) -> Clusters:
    """Drop outlying runs, and match the components of the others.

    Each run has one component in each cluster, by the assignment with the largest sum of cosines
    to the centres. Centres are medians of their clusters, of length 1; the first are the components
    of the medoid, the run most like all others. A run is an outlier if the nearest 30 % of the
    others are far from it. Stability is the mean silhouette of a cluster by cosine distance: 1
    where all runs find the same, about 0 where they find something else each time. With a single
    component there is no other cluster to compare with, and it is the mean cosine.
    """
    X = units(H)
    alike = _alike(X)
    kept = ~_outlying(alike)
    at = np.flatnonzero(kept)
    medoid = int(at[alike[at].mean(axis=1).round(9).argmax()])
    X, centres = X[at], X[medoid]
    columns = np.stack([assigned(centres, run) for run in X])
    for _ in range(_ROUNDS):
        centres = _medians(_arranged(X, columns))
        before, columns = columns, np.stack([assigned(centres, run) for run in X])
        if (columns == before).all():
            break
    X = _arranged(X, columns)
    cosine = np.einsum("knr,nr->r", X, centres) / len(X)
    return Clusters(kept, medoid, columns, centres, _silhouettes(X), cosine)


def units(H: Float[np.ndarray, "*k n r"]) -> Float[np.ndarray, "*k n r"]:
    """Columns of length 1; those of zeros stay."""
    for size in (lambda A: np.abs(A).max(axis=-2), lambda A: np.linalg.norm(A, axis=-2)):
        sizes = size(H)  # by the largest first, so that squares are finite
        H = H / np.where(sizes > 0, sizes, 1.0)[..., None, :]
    return H


def assigned(A: Float[np.ndarray, "n r"], B: Float[np.ndarray, "n r"]) -> Int[np.ndarray, " r"]:
    """The column of B for each column of A, such that the sum of cosines is largest."""
    return linear_sum_assignment(-(A.T @ B))[1]


def _alike(X: Float[np.ndarray, "k n r"]) -> Float[np.ndarray, "k c"]:
    """The mean cosine of matched components, of each run and some or all of the others.

    NaN stands for a run itself.
    """
    k, _, r = X.shape
    others = np.unique(np.linspace(0, k - 1, min(k, _COMPARED)).astype(int))
    alike = np.full((k, len(others)), np.nan)
    for b, other in enumerate(others):
        cosines = X.swapaxes(1, 2) @ X[other]  # (k, r, r)
        for a in range(k):
            if a != other:
                alike[a, b] = cosines[a][linear_sum_assignment(-cosines[a])].sum() / r
    return np.where(np.isnan(alike), np.nanmean(alike, axis=1, keepdims=True), alike)


def _outlying(alike: Float[np.ndarray, "k c"]) -> Bool[np.ndarray, " k"]:
    """Runs that are far from even their nearest neighbours."""
    near = max(1, round(_NEAREST * alike.shape[1]))
    far = 1 - np.sort(alike, axis=1)[:, -near:].mean(axis=1)
    median = np.median(far)
    spread = 1.4826 * np.median(np.abs(far - median))
    return far > max(median + _FAR * spread, _LEAST)


def _arranged(
    X: Float[np.ndarray, "k n r"], columns: Int[np.ndarray, "k r"]
) -> Float[np.ndarray, "k n r"]:
    return np.take_along_axis(X, columns[:, None, :], axis=2)


def _medians(X: Float[np.ndarray, "k n r"]) -> Float[np.ndarray, "n r"]:
    """The median of each cluster; the mean where the median is zero."""
    median = np.median(X, axis=0)
    return units(np.where((median != 0).any(axis=0), median, X.mean(axis=0)))


def _silhouettes(X: Float[np.ndarray, "k n r"]) -> Float[np.ndarray, " r"]:
    """The mean silhouette of each cluster, by cosine distance.

    The mean distance to a cluster is 1 − ⟨x, mean of the cluster⟩, so no distance between two
    components is needed.
    """
    k, _, r = X.shape
    far = 1 - X.swapaxes(1, 2) @ X.mean(axis=0)  # (k, r, r)
    lengths = np.square(X).sum(axis=1)  # (k, r): 1, or 0 for a component of zeros
    within = np.einsum("krr->kr", far) * k / (k - 1) - (1 - lengths) / (k - 1)
    if r == 1:
        return (1 - within).mean(axis=0)
    within = within.clip(min=0)
    nearest = np.where(np.eye(r, dtype=bool), np.inf, far).min(axis=2)
    scale = np.maximum(np.maximum(within, nearest), np.finfo(float).tiny)
    return ((nearest - within) / scale).mean(axis=0)
