"""Measure how often `select_loss` names the noise that was planted: make bench NAME=loss.

A case is a nonnegative matrix of low rank with noise of one of four kinds. Everything about it is
drawn from its seed: shape, rank, sparsity of the factors, level and strength of the noise.
Seeds from 0 on are for measuring; to try ideas, take others (--first 10000).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import NamedTuple

import numpy as np

KINDS = ("gaussian", "poisson", "overdispersed", "multiplicative")


class Case(NamedTuple):
    """A matrix, the kind of its noise, and the draw in words."""

    V: np.ndarray
    kind: str
    words: str


def case(kind: str, seed: int) -> Case:
    """The planted case of a kind and a seed."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    m, n = int(rng.choice([60, 150, 400])), int(rng.choice([30, 80, 150]))
    rank, shape = int(rng.choice([2, 4, 7])), float(rng.choice([0.5, 1.0, 2.0]))
    mean = rng.gamma(shape, size=(m, rank)) @ rng.gamma(shape, size=(rank, n))
    mean /= mean.mean()
    about = f"{m}×{n}, rank {rank}, gamma {shape:g}"
    if kind == "gaussian":  # cut off at 0, as measurements are
        sigma = float(rng.choice([0.05, 0.2, 0.5]))
        V = np.maximum(mean + sigma * rng.normal(size=(m, n)), 0)
        return Case(V, kind, f"{about}, sigma {sigma:g}")
    if kind == "poisson":
        level = float(rng.choice([1, 5, 50]))
        return Case(rng.poisson(level * mean).astype(float), kind, f"{about}, mean {level:g}")
    if kind == "overdispersed":  # negative binomial: variance μ + αμ², of which αμ is 1 … 4 where
        level = float(rng.choice([3, 10, 50]))  # μ has its mean
        alpha = float(rng.choice([1, 2, 4])) / level
        rate = rng.gamma(1 / alpha, alpha * level * mean)
        return Case(rng.poisson(rate).astype(float), kind, f"{about}, mean {level:g}, α {alpha:g}")
    if rng.random() < 0.5:
        k = float(rng.choice([2, 5, 20]))
        return Case(mean * rng.gamma(k, 1 / k, size=(m, n)), kind, f"{about}, gamma noise {k:g}")
    s = float(rng.choice([0.2, 0.5]))
    return Case(mean * rng.lognormal(0, s, size=(m, n)), kind, f"{about}, log-normal noise {s:g}")


def main() -> None:
    """Print how many of each kind were named as planted, and those that were not."""
    import factormer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=25, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    started, wrong, right = time.perf_counter(), [], Counter()
    for kind in KINDS:
        for seed in range(asked.first, asked.first + asked.cases):
            planted = case(kind, seed)
            found = factormer.select_loss(planted.V)
            right[kind] += found.kind == kind
            if found.kind != kind:
                wrong.append(
                    f"{kind}, seed {seed} ({planted.words}): {found.kind}, {found.power:.2f}"
                )
    total = len(KINDS) * asked.cases
    for kind in KINDS:
        print(f"{kind:>15}: {right[kind]} of {asked.cases}")
    print(f"{'all':>15}: {right.total()} of {total}, {right.total() / total:.1%}")
    print(f"{(time.perf_counter() - started) / total:.2f} s a case")
    print(*wrong, sep="\n")


if __name__ == "__main__":
    main()
