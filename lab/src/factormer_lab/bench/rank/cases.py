"""The problems of the benchmark of ranks: generators and seeds, fixed before any training.

The network trains on other seeds of the first two families (`planted.TRAINING` and above), and on
none of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from factormer_lab.train.rank.planted import SMALL, WIDE, drawn_factors, noisy, planted

COUNTS = {"small": 600, "wide": 120}
NOISES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
LADDER_RANKS = range(3, 21)


class Case(NamedTuple):
    """A matrix, its planted rank, the ranks to choose from, and where it belongs."""

    V: np.ndarray
    rank: int
    ranks: range
    group: str
    kind: str


def small() -> Iterator[Case]:
    """Ranks 1–12, to be chosen from 1–16: 20–128 rows and columns."""
    for seed in range(COUNTS["small"]):
        p = planted(SMALL, seed)
        yield Case(p.V, p.rank, range(1, 17), "small", f"{p.noise} {p.factors}")


def wide() -> Iterator[Case]:
    """Ranks 5–40, to be chosen from 1–45: 60–200 rows and columns."""
    for seed in range(COUNTS["wide"]):
        p = planted(WIDE, seed)
        yield Case(p.V, p.rank, range(1, min(46, *p.V.shape)), "wide", f"{p.noise} {p.factors}")


def overlapping() -> Iterator[Case]:
    """Like `small`, of bumps in random places, many of which coincide: for comparison alone."""
    for seed in range(100):
        p = planted(SMALL, seed, "overlapping")
        yield Case(p.V, p.rank, range(1, 17), "overlapping", f"{p.noise} {p.factors}")


def ladder() -> Iterator[Case]:
    """Ranks 3–20, to be chosen from 1–24, 120×100, with noise of 0–20 % of the data's size."""
    for number, (rank, noise) in enumerate(product(LADDER_RANKS, NOISES)):
        rng = np.random.default_rng([7, number])
        W, H, _ = drawn_factors("gamma", 120, 100, rank, rng)
        clean = W @ H.T
        size = np.sqrt(np.square(clean / clean.mean()).mean())
        V, _ = noisy(clean / clean.mean(), "gaussian", rng, level=noise * size)
        yield Case(V, rank, range(1, 25), "ladder", f"{noise:.0%}")


def gaps() -> Iterator[Case]:
    """The first hundred of `small`, with 5–30 % of the entries missing."""
    for seed in range(100):
        p, rng = planted(SMALL, seed), np.random.default_rng([11, seed])
        V = np.where(rng.random(p.V.shape) < rng.uniform(0.05, 0.3), np.nan, p.V)
        yield Case(V, p.rank, range(1, 17), "gaps", f"{p.noise} {p.factors}")


def large() -> Iterator[Case]:
    """Matrices of 1000–3000 rows and 500–1500 columns, ranks 2–14, to be chosen from 1–16."""
    for seed in range(12):
        rng = np.random.default_rng([13, seed])
        rank = int(rng.integers(2, 15))
        m, n = int(rng.integers(1000, 3001)), int(rng.integers(500, 1501))
        W, H, _ = drawn_factors("sparse", m, n, rank, rng)
        clean = W @ H.T
        V, _ = noisy(clean / clean.mean(), ("gaussian", "poisson")[seed % 2], rng)
        yield Case(V, rank, range(1, 17), "large", ("gaussian", "poisson")[seed % 2])


def swimmer() -> Case:
    """The 256 images of Donoho and Stodden (2003), 32×32: a torso and four limbs in four places.

    Every image has the torso and one place of each limb, so 16 parts are enough: the torso may
    belong to the four places of one limb. As parts that are drawn it has 17; its linear rank is 13.
    """
    images = np.zeros((256, 32, 32))
    images[:, 10:22, 15:17] = 1  # the torso
    shoulders = ((10, 14, -1), (10, 17, 1), (21, 14, -1), (21, 17, 1))  # row, column, side
    for number, places in enumerate(product(range(4), repeat=4)):
        for (row, column, side), place in zip(shoulders, places, strict=True):
            angle = np.pi * (place / 3 - 0.5) * 0.9
            for step in range(6):
                r = row + round(step * np.sin(angle))
                c = column + side * round(step * np.cos(angle))
                images[number, r, c] = 1
    return Case(images.reshape(256, -1), 16, range(1, 25), "swimmer", "exact")


GROUPS = {
    "small": small,
    "wide": wide,
    "ladder": ladder,
    "gaps": gaps,
    "large": large,
    "overlapping": overlapping,
}
