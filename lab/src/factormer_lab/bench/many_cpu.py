"""Many small problems on a CPU: seconds of `factorize_many` beside scikit-learn in a pool.

    make bench NAME=many ARGS="[COUNT]"

COUNT (2000) problems of 96×100, Poisson counts of products of gamma factors, at ranks 2 to 12.
scikit-learn works in as many processes of joblib as there are cores. The ratio is that of seconds
to the same geometric mean of the errors. Our times are the best of ROUNDS, factors included.
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

ROUNDS = 2
LIMITS = (5, 8, 9, 10, 11, 12, 15, 20, 25, 28, 32, 40, 60, 100)
SETTINGS = ((1e-4, 200), (1e-5, 500))  # tol and max_iter of scikit-learn; the first is its default


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


def by_us(Vs: list[np.ndarray], ranks: np.ndarray, **options: Any) -> tuple[float, float]:
    """Seconds until all factors are there, the best of ROUNDS; the mean of the errors."""
    times, error = [], np.nan
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        results = factormer.factorize_many(Vs, ranks, **options)
        factors = [(result.W, result.H) for result in results]
        times.append(time.perf_counter() - begun)
        assert len(factors) == len(Vs)
        error = mean_of(results.rmse)
    return min(times), error


def row(name: str, seconds: float, error: float) -> None:
    """Print a row."""
    print(f"{name:40s} {seconds:8.2f} s   mean error {error:.6g}", flush=True)


def main() -> None:
    """Print a row for each: seconds, and the geometric mean of the errors."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    Vs, ranks = problems(count)
    factormer.factorize_many(Vs[:20], ranks[:20])  # which may compile
    print(f"{count} problems of 96×100, ranks 2–12, {os.cpu_count()} cores")
    begun = time.perf_counter()
    for k in range(0, count, 10):
        factormer.factorize(Vs[k], int(ranks[k]), random_state=k)
    print(f"factorize, one after another: {10 * (time.perf_counter() - begun):.2f} s, by a tenth")
    ours = [by_us(Vs, ranks, tol=0, max_iter=n_iter) for n_iter in LIMITS]
    for n_iter, (seconds, error) in zip(LIMITS, ours, strict=True):
        row(f"factorize_many, {n_iter} iterations", seconds, error)
    row("factorize_many, tol=1e-4", *by_us(Vs, ranks))
    at_once: Any = {"n_jobs": -1, "batch_size": 20}
    with Parallel(**at_once) as pool:
        pool(delayed(by_sklearn)(V, 2, 0, 1e-4, 1) for V in Vs[:40])  # which starts the processes
        for tol, max_iter in SETTINGS:
            begun = time.perf_counter()
            errors = pool(
                delayed(by_sklearn)(V, int(rank), k, tol, max_iter)
                for k, (V, rank) in enumerate(zip(Vs, ranks, strict=True))
            )
            taken = time.perf_counter() - begun
            row(f"scikit-learn, tol={tol:g}, max_iter={max_iter}", taken, mean_of(errors))
            as_good = [seconds for seconds, error in ours if error <= mean_of(errors)]
            ratio = f"{taken / min(as_good):.1f} times" if as_good else "not reached"
            print(f"    to the same mean error: {ratio}", flush=True)


if __name__ == "__main__":
    main()
