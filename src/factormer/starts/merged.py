"""A start with more components than wanted, which are merged in pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.hals import HALS
from factormer.solvers.loop import iterated
from factormer.starts.base import Initializer
from factormer.starts.random import Random


@dataclass(frozen=True)
class Merged:
    """Another start with more components than wanted, after a few iterations merged in pairs.

    Components compete before merging: that costs about what it saves in later iterations, and they
    end nearer to the optimum. Nothing is decomposed, so it suits sparse data.
    """

    base: Initializer = field(default_factory=Random)
    surplus: float = 0.5  # components beyond the rank, as a share of it
    n_iter: int = 2

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        wider = Problem(problem.V, problem.rank + math.ceil(self.surplus * problem.rank))
        state = iterated(wider, HALS(alpha=0.0), self.base(wider, rng), self.n_iter)
        return merge(state.factors, problem.rank)


def merge(x: Factors, rank: int) -> Factors:
    """Merge the components of x, two at a time, until there are `rank`.

    Of all pairs, the one whose w₁h₁ᵀ + w₂h₂ᵀ is nearest to a matrix of rank 1 comes first: that is
    the pair of least second singular value, computed from the Gram matrices of W and H. It becomes
    w₁ + w₂ and the mean of h₁ and h₂ by their length, where each wᵢ is as long as its hᵢ.
    """
    *batch, _, k = x.W.shape
    grams = ((F.double().mT @ F.double()).cpu().view(-1, k, k).numpy() for F in x)
    mixed = [_merging(A, B, rank) for A, B in zip(*grams, strict=True)]
    P, Q = (
        torch.from_numpy(np.stack(M)).to(x.W).view(*batch, k, rank)
        for M in zip(*mixed, strict=True)
    )
    return Factors(x.W @ P, x.H @ Q)


def _merging(A: np.ndarray, B: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The k × rank matrices that merge the columns of W and H, from A = WᵀW and B = HᵀH."""
    a, b = A.diagonal(), B.diagonal()
    alive = a * b > 1e-24 * (a * b).max()  # others are zero, up to rounding
    balance = np.where(alive, b, 1) / np.where(alive, a, 1)
    P, Q = np.diag(balance**0.25), np.diag(balance**-0.25)
    A, B = P @ A @ P, Q @ B @ Q
    while len(A) > rank:
        first, other = _nearest_pair(A, B)
        s, t = ((A[c, c] * B[c, c]) ** 0.25 for c in (first, other))  # the lengths of w and h
        share = t / (s + t) if s + t > 0 else 0.5
        mix_W = np.delete(np.eye(len(A)), other, axis=1)
        mix_H = mix_W.copy()
        mix_W[other, first], mix_H[other, first], mix_H[first, first] = 1, share, 1 - share
        A, B = mix_W.T @ A @ mix_W, mix_H.T @ B @ mix_H
        P, Q = P @ mix_W, Q @ mix_H
    return P, Q


def _nearest_pair(A: np.ndarray, B: np.ndarray) -> tuple[int, int]:
    """The pair of components, the first before the other, of least second singular value."""
    a, b = A.diagonal(), B.diagonal()
    trace = np.add.outer(a * b, a * b) + 2 * A * B  # sum of both squared singular values
    area = (np.outer(a, a) - A * A) * (np.outer(b, b) - B * B)  # their product
    root = np.sqrt(np.maximum(trace * trace - 4 * area, 0))
    second = area / np.maximum(trace + root, np.finfo(float).tiny)
    second[second <= 1e-12 * trace] = 0  # of rank 1, up to rounding: then the first of them
    second[np.tril_indices(len(A))] = np.inf
    first, other = divmod(int(second.argmin()), len(A))
    return first, other
