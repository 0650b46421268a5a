"""Many small problems on a CPU: seconds of `factorize_many` beside scikit-learn in a pool.

    python benchmarks/many_cpu.py [COUNT]

COUNT (2000) problems of 96×100, Poisson counts of products of gamma factors, at ranks 2 to 12.
scikit-learn works in as many processes of joblib as there are cores, at ever stricter settings,
until the geometric mean of its errors is at most 1.001 times ours. Times are the best of ROUNDS.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.decomposition import NMF

import factormer

ROUNDS = 3
SETTINGS = ((1e-4, 200), (1e-5, 500), (1e-6, 1000), (1e-7, 2000))  # tol and max_iter


def problems(count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Counts with a few components each, and the ranks to fit."""
    rng = np.random.default_rng(0)
    ranks = rng.integers(2, 13, count)
    made = []
    for rank in ranks:
        mixed = rng.gamma(0.5, size=(96, rank)) @ rng.gamma(0.5, size=(rank, 100))
        made.append(rng.poisson(20 * mixed).astype(float))
    return made, ranks


def by_sklearn(V: np.ndarray, rank: int, seed: int, tol: float, max_iter: int) -> float:
    """The error of scikit-learn's NMF."""
    warnings.simplefilter("ignore")
    options: Any = {"n_components": rank, "random_state": seed, "tol": tol, "max_iter": max_iter}
    model = NMF(**options)
    W = model.fit_transform(V)
    return float(np.sqrt(np.square(W @ model.components_ - V).mean()))


def mean_of(errors: Any) -> float:
    """Their geometric mean."""
    return float(np.exp(np.log(np.asarray(errors)).mean()))


def by_us(Vs: list[np.ndarray], ranks: np.ndarray) -> tuple[float, float]:
    """Seconds until all factors are there, and the geometric mean of the errors."""
    begun = time.perf_counter()
    results = factormer.factorize_many(Vs, ranks)
    factors = [(result.W, result.H) for result in results]
    seconds = time.perf_counter() - begun
    assert len(factors) == len(Vs)
    return seconds, mean_of(results.rmse)


def main() -> None:
    """Print a row for each: seconds, and the geometric mean of the errors."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    Vs, ranks = problems(count)
    factormer.factorize_many(Vs[:20], ranks[:20])  # which may compile
    ours, goal = min(by_us(Vs, ranks) for _ in range(ROUNDS))
    print(f"{count} problems of 96×100, ranks 2–12, {os.cpu_count()} cores")
    print(f"factorize_many                        {ours:8.2f} s  mean error {goal:.6g}", flush=True)
    begun = time.perf_counter()
    for k in range(0, count, 10):
        factormer.factorize(Vs[k], int(ranks[k]), random_state=k)
    alone = 10 * (time.perf_counter() - begun)
    print(f"factorize, one after another          {alone:8.2f} s  (from every tenth)", flush=True)
    seconds = 0.0
    at_once: Any = {"n_jobs": -1, "batch_size": 20}
    with Parallel(**at_once) as pool:
        pool(delayed(by_sklearn)(V, 2, 0, 1e-4, 1) for V in Vs[:40])  # which starts the processes
        for tol, max_iter in SETTINGS:
            begun = time.perf_counter()
            errors = pool(
                delayed(by_sklearn)(V, int(rank), k, tol, max_iter)
                for k, (V, rank) in enumerate(zip(Vs, ranks, strict=True))
            )
            seconds = time.perf_counter() - begun
            name = f"scikit-learn, tol={tol:g}, max_iter={max_iter}"
            print(f"{name:37s} {seconds:8.2f} s  mean error {mean_of(errors):.6g}", flush=True)
            if mean_of(errors) <= 1.001 * goal:
                break
    print(f"{seconds / ours:.1f} times scikit-learn, {alone / ours:.1f} times single calls")


if __name__ == "__main__":
    main()
