"""Replicates of one matrix on a CPU: `factorize_many` beside single calls one after another.

    FACTORMER_DATA=DIR make bench NAME=replicates ARGS="[--count 100] [--single 5] [NAME …]"

NAME is dense (20000×2000, larger than the cache), middle (2000×500), small (200×100), or a real
matrix such as bbc_news; all at rank 10, from random starts, at the default tolerance. Single calls
are made for the first few replicates, with the same seeds, once as `factorize` chooses and once
with the solver of replicates; their seconds are scaled to the count.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import factormer
from factormer_lab.bench.cases import exponential, find

RANK = 10
SIZES = {"dense": (20_000, 2_000), "middle": (2_000, 500), "small": (200, 100)}


def matrix(name: str) -> Any:
    """A matrix by name; generated ones have noise of a fifth of their mean."""
    if name in SIZES:
        return exponential(*SIZES[name], RANK, seed=0, noise=0.2)
    return find([f"{name}:{RANK}"])[0].load()


def measure(name: str, count: int, single: int) -> None:
    """Print the seconds of each way, and their ratio."""
    V = matrix(name)
    factormer.factorize_many(V, [RANK], n_init=3, max_iter=5)  # which may compile
    factormer.factorize(V, RANK, init="random", max_iter=5)
    begun = time.perf_counter()
    results = factormer.factorize_many(V, [RANK], n_init=count)
    together = time.perf_counter() - begun
    print(f"{name} {V.shape[0]}×{V.shape[1]}, {count} replicates at rank {RANK}")
    print(f"  factorize_many  {together:9.2f} s   median RMSE {np.median(results.rmse):.6g}")
    for solver in ("auto", "her"):
        begun = time.perf_counter()
        alone = [
            factormer.factorize(V, RANK, init="random", solver=solver, random_state=seed)
            for seed in range(single)
        ]
        seconds = (time.perf_counter() - begun) / single * count
        same = max(abs(a.rmse / b.rmse - 1) for a, b in zip(alone, results[:single], strict=True))
        print(
            f"  single, {solver:<4}    {seconds:9.2f} s   {seconds / together:.2f} times; errors "
            f"differ by {same:.1e}",
            flush=True,
        )


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--single", type=int, default=5)
    parser.add_argument("names", nargs="*", default=["dense", "bbc_news", "middle", "small"])
    asked = parser.parse_args()
    for name in asked.names:
        measure(name, asked.count, asked.single)


if __name__ == "__main__":
    main()
