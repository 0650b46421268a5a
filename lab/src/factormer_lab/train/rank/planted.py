"""Matrices with a planted rank: many kinds of factors, of noise, of sizes and of strengths.

Everything about a matrix follows from its seed. Benchmarks use seeds below `TRAINING`, training
uses those from there on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

TRAINING = 1_000_000  # the first seed that training may use
NOISES = ("gaussian", "multiplicative", "poisson", "overdispersed", "exact")
FACTORS = ("gamma", "sparse", "smooth", "correlated", "parts")
_NOISE_SHARES = (0.27, 0.26, 0.26, 0.17, 0.04)
_FACTOR_SHARES = (0.33, 0.33, 0.14, 0.14, 0.06)


class Planted(NamedTuple):
    """A matrix of mean 1, or of counts, and how it was made."""

    V: np.ndarray
    rank: int
    noise: str
    factors: str
    level: float  # noise relative to the mean, or the mean of the counts
    clean: np.ndarray  # of mean 1, without noise


class Family(NamedTuple):
    """Which sizes and ranks are drawn, each uniformly; sides are at least `slack` × rank."""

    name: str
    ranks: tuple[int, int]
    sides: tuple[int, int]
    slack: float = 1.0


SMALL = Family("small", (1, 12), (20, 128))
WIDE = Family("wide", (5, 40), (60, 200), 1.5)


def planted(family: Family, seed: int, factors: str | None = None) -> Planted:
    """The matrix of a family that belongs to a seed; of one kind of factors, where it is given.

    Besides those of `FACTORS` there are "overlapping" ones, smooth bumps in random places: many of
    them coincide, so that the data does not have the rank that was planted.
    """
    rng = np.random.default_rng([seed, family.ranks[1]])
    rank = int(rng.integers(family.ranks[0], family.ranks[1] + 1))
    least = max(family.sides[0], math.ceil(family.slack * rank))
    m, n = (int(rng.integers(least, family.sides[1] + 1)) for _ in range(2))
    kind = str(rng.choice(FACTORS, p=_FACTOR_SHARES))
    kind = kind if factors is None else factors
    noise = str(rng.choice(NOISES, p=_NOISE_SHARES))
    W, H, kind = drawn_factors(kind, m, n, rank, rng)
    strengths = np.exp(rng.normal(size=rank) * rng.random() * 0.8)
    clean = (W * strengths) @ H.T
    clean = clean / clean.mean()
    V, level = noisy(clean, noise, rng)
    return Planted(V, rank, noise, kind, level, clean)


def drawn_factors(
    kind: str, m: int, n: int, rank: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, str]:
    """W (m, r) and H (n, r), their columns of mean 1, and the kind that they are.

    Parts need a rank that is a sum of groups, and rows for their combinations; ranks below 4 get
    gamma factors instead.
    """
    if kind == "parts" and rank >= 4:
        W, H = _choices(m, rank, rng), _factor("sparse", n, rank, rng)
        return W / W.mean(0), H / H.mean(0), kind
    kind = "gamma" if kind == "parts" else kind
    other = kind if rng.random() < 0.7 else "gamma"
    left, right = (kind, other) if rng.random() < 0.5 else (other, kind)
    W, H = _factor(left, m, rank, rng), _factor(right, n, rank, rng)
    return W / W.mean(0), H / H.mean(0), kind


def noisy(
    clean: np.ndarray, noise: str, rng: np.random.Generator, level: float | None = None
) -> tuple[np.ndarray, float]:
    """Data around a clean matrix of mean 1; its level is drawn where none is given."""
    if noise in ("gaussian", "multiplicative"):
        u = _between(0.01, 0.6, rng) if level is None else level
        size = u if noise == "gaussian" else u * clean
        return np.maximum(clean + size * rng.normal(size=clean.shape), 0), u
    if noise == "poisson":
        c = _between(0.5, 200.0, rng) if level is None else level
        return _counted(rng.poisson(c * clean), rng, c * clean), c
    if noise == "overdispersed":  # negative binomial: variance μ + φ μ²
        c = _between(0.5, 200.0, rng) if level is None else level
        phi = _between(0.01, 0.5, rng)
        rates = c * clean * rng.gamma(1 / phi, phi, size=clean.shape)
        return _counted(rng.poisson(rates), rng, c * clean), c
    return clean, 0.0


def _counted(counts: np.ndarray, rng: np.random.Generator, means: np.ndarray) -> np.ndarray:
    """Counts as numbers; a matrix without any is drawn again, its rates doubled."""
    while not counts.any():
        means = 2 * means
        counts = rng.poisson(means)
    return counts.astype(float)


def _factor(kind: str, size: int, rank: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of one kind, none of them zero."""
    if kind in ("smooth", "overlapping"):
        at, widths = rng.random(rank), _between(0.03, 0.3, rng) * rng.uniform(0.5, 1.5, rank)
        if kind == "smooth":  # about as far apart as they are wide, and wider than the grid
            at, widths = (rng.permutation(rank) + at) / rank, 3.3 * widths / rank
            widths = np.maximum(widths, 0.6 / size)
        grid = np.linspace(0, 1, size)[:, None]
        bumps = np.exp(-0.5 * ((grid - at) / widths) ** 2)
        return bumps + 1e-3 + rng.random(rank) * rng.random() * 0.2
    shape = _between(0.15, 2.0, rng)
    X = rng.gamma(shape, size=(size, rank)) / shape
    if kind == "sparse":
        X = X * (rng.random((size, rank)) < rng.uniform(0.15, 1))
    if kind == "correlated":
        common = rng.uniform(0.1, 0.7)
        X = (1 - common) * X + common * rng.gamma(shape, size=(size, 1)) / shape
    empty = X.sum(0) <= 0
    X[rng.integers(size, size=rank), np.arange(rank)] += empty
    return X + 1e-9


def _choices(m: int, rank: int, rng: np.random.Generator) -> np.ndarray:
    """Rows that use exactly one component of each group, as a swimmer has each limb in one place.

    Such a V has a lower linear rank than the number of its parts.
    """
    sizes: list[int] = []
    while sum(sizes) < rank:
        left = rank - sum(sizes)
        size = int(rng.integers(2, 6))
        sizes.append(left if left - size < 2 else size)
    groups = []
    for size in sizes:
        taken = rng.permutation(np.arange(m) % size)
        groups.append(np.eye(size)[taken])
    return np.concatenate(groups, 1) * rng.uniform(0.7, 1.3, (m, 1))


def _between(low: float, high: float, rng: np.random.Generator) -> float:
    """A number whose logarithm is uniform."""
    return float(low * (high / low) ** rng.random())
