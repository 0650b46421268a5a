"""Which samples go together, run after run: the consensus matrix (Brunet et al., 2004)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import cophenet, leaves_list, linkage
from scipy.spatial.distance import squareform

_EQUAL = 1e-9  # spread below which all distances are the same


class Tree(NamedTuple):
    """How well a tree represents the distances, and the order of its leaves."""

    cophenetic: float
    order: Int[np.ndarray, " s"]


def connected(label: Int[np.ndarray, "k s"], rank: int) -> Float[np.ndarray, "s s"]:
    """The share of runs in which two samples have the same largest component.

    A sample that uses no component, of label −1, goes with itself alone.
    """
    k, s = label.shape
    together = np.zeros((s, s))
    for c in range(rank):
        member = (label == c).astype(np.float32)
        together += member.T @ member
    matrix = together / k
    np.fill_diagonal(matrix, 1.0)
    return matrix


def tree_of(matrix: Float[np.ndarray, "s s"]) -> Tree:
    """The tree by average linkage of the distances 1 − matrix."""
    s = len(matrix)
    distances = squareform((1 - matrix).clip(min=0), checks=False)
    if s < 3 or np.ptp(distances) < _EQUAL:  # all pairs alike: a tree says it all
        return Tree(1.0, np.arange(s))
    tree = linkage(distances, "average")
    return Tree(float(cophenet(tree, distances)[0]), leaves_list(tree))
