"""Count how often planted programs are found: make bench NAME=metaprograms.

A draw has six to ten samples of 150 to 400 cells and 400 genes. Some programs are in all samples,
some in two or more, and some in one alone; each sample has its own version of a program (genes
differ by a third), its own number of cells, and counts with Poisson noise. Every second draw is
fitted as counts; in the others cells are brought to one depth and genes to variance 1, under the
squared error. Seeds from 0 on are for measuring; to try ideas, take others (--first 10000).
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

import factormer

GENES = 400
ALIKE = 0.8  # the least cosine at which a program is found


class Draw(NamedTuple):
    """Counts of each sample, the programs, and which sample has which."""

    samples: list[np.ndarray]
    programs: np.ndarray  # (programs, genes)
    has: np.ndarray  # (samples, programs), bool


def draw(seed: int) -> Draw:
    """The planted samples of a seed."""
    rng = np.random.default_rng([seed])
    count = int(rng.integers(6, 11))
    everywhere, some = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    alone = np.flatnonzero(rng.random(count) < 0.5)
    k = everywhere + some + len(alone)
    has = np.zeros((count, k), bool)
    has[:, :everywhere] = True
    for c in range(everywhere, everywhere + some):
        has[rng.permutation(count)[: int(rng.integers(2, count))], c] = True
    has[alone, everywhere + some + np.arange(len(alone))] = True
    programs = rng.gamma(0.5, size=(k, GENES)) * 0.2
    for c in range(k):
        programs[c, rng.permutation(GENES)[:40]] += rng.gamma(2.0, size=40)
    programs *= rng.lognormal(0, 0.7, size=GENES)  # some genes are strong in every program
    samples = []
    for s in range(count):
        own = programs[has[s]] * rng.lognormal(0, 0.3, size=(int(has[s].sum()), GENES))
        use = rng.gamma(0.4, size=(int(rng.integers(150, 401)), len(own)))
        mean = use @ own
        mean *= rng.lognormal(np.log(1000), 0.3, size=(len(use), 1)) / (
            mean.sum(1, keepdims=True) + 1
        )
        samples.append(rng.poisson(mean).astype(float))
    return Draw(samples, programs, has)


def prepared(samples: list[np.ndarray]) -> list[np.ndarray]:
    """Cells of one depth, and genes of variance 1 over all samples."""
    even = [X / np.maximum(X.sum(1, keepdims=True), 1) * 1000 for X in samples]
    size = np.concatenate(even).std(axis=0)
    return [X / np.where(size > 0, size, 1) for X in even]


def judged(planted: Draw, found: factormer.MetaPrograms, scale: np.ndarray) -> dict[str, bool]:
    """Whether meta-programs are as many as planted, the same ones, and in the same samples."""
    in_some = planted.has.sum(axis=0) >= 2
    P = planted.programs[in_some] * scale
    P, H = P / np.linalg.norm(P, axis=1, keepdims=True), found.H
    rows, columns = linear_sum_assignment(-(P @ H))
    alike = (P @ H)[rows, columns]
    is_same = len(H.T) == len(P) and bool((alike >= ALIKE).all())
    present = np.isfinite(found.cosines)
    exact = is_same and bool((present[columns] == planted.has[:, in_some].T[rows]).all())
    return {
        "counted": len(H.T) == len(P),
        "counted and found": is_same,
        "the very samples of each": exact,
        "programs of one sample counted": len(found.alone) == int((~in_some).sum()),
        "called clear": found.clear,
        "clear and right": found.clear and is_same,
    }


def main() -> None:
    """Print how often programs were found, and the draws in which they were not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    began, rows = time.perf_counter(), []
    for seed in range(asked.first, asked.first + asked.draws):
        planted = draw(seed)
        counts = seed % 2 == 0
        samples = planted.samples if counts else prepared(planted.samples)
        loss = "kullback-leibler" if counts else "frobenius"
        found = factormer.metaprograms(samples, loss=loss)
        size = np.ones(GENES)
        if not counts:
            even = np.concatenate(
                [X / np.maximum(X.sum(1, keepdims=True), 1) * 1000 for X in planted.samples]
            )
            size = 1 / even.std(axis=0)
        rows.append(judged(planted, found, size))
        if not rows[-1]["counted and found"] or not rows[-1]["programs of one sample counted"]:
            shared = int((planted.has.sum(axis=0) >= 2).sum())
            print(f"seed {seed}: {shared} of {planted.has.shape[1]} planted are shared; {found!r}")
    for name in rows[0]:
        print(f"{name:>32}: {sum(row[name] for row in rows)} of {len(rows)}")
    print(f"{(time.perf_counter() - began) / len(rows):.1f} s a draw")


if __name__ == "__main__":
    main()
