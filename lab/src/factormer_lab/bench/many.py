"""Many small problems, replicates and transforms on a CPU, beside single calls and scikit-learn.

    make bench NAME=many ARGS=500                     # problems of 96×100 at ranks 2 to 12; 2000
    make bench NAME=replicates ARGS="bbc_news --count 100 --single 5"
    make bench NAME=transform ARGS="1 1000"           # rows; by default up to a million

"many" are Poisson counts of products of gamma factors. scikit-learn works in as many processes of
joblib as there are cores; the ratio is that of seconds to the same geometric mean of the errors.
"replicates" are of one matrix of those in `SIZES`, or of a real one, at rank 10 from random starts.
Single calls are made for the first few of them, with the same seeds, and their seconds are scaled
to the count. "transform" fits new rows on given components, beside scikit-learn, and scipy row by
row. Our times are the best of a few, with all factors there.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

import factormer
from factormer_lab.bench.cases import exponential, find
from factormer_lab.bench.errors import rmse

ROUNDS = 2
LIMITS = (5, 8, 9, 10, 11, 12, 15, 20, 25, 28, 32, 40, 60, 100)
SETTINGS = ((1e-4, 200), (1e-5, 500))  # tol and max_iter of scikit-learn; the first is its default
RANK = 10
SIZES = {"dense": (20_000, 2_000), "middle": (2_000, 500), "small": (200, 100)}
FEATURES, RANKS = 100, (10, 40)


def clocked(call: Callable[[], Any], rounds: int = 1) -> tuple[float, Any]:
    """Return the least seconds of so many calls, and what the last returned."""
    times, found = [], None
    for _ in range(rounds):
        begun = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - begun)
    return min(times), found


def ragged(count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return counts with a few components each, and the ranks to fit."""
    rng = np.random.default_rng(0)
    ranks = rng.integers(2, 13, count)
    products = (rng.gamma(0.5, size=(96, r)) @ rng.gamma(0.5, size=(r, 100)) for r in ranks)
    return [rng.poisson(20 * mean).astype(float) for mean in products], ranks


def by_sklearn(V: np.ndarray, rank: int, seed: int, tol: float, max_iter: int) -> float:
    """Return the error of scikit-learn's NMF."""
    from sklearn.decomposition import NMF

    warnings.simplefilter("ignore")
    options: Any = {"n_components": rank, "random_state": seed, "tol": tol, "max_iter": max_iter}
    model = NMF(**options)
    return rmse(V, model.fit_transform(V), model.components_.T)


def by_us(Vs: list[np.ndarray], ranks: np.ndarray, **options: Any) -> tuple[float, float]:
    """Return seconds until all factors are there, and the geometric mean of the errors."""

    def call() -> Any:
        results = factormer.factorize_many(Vs, ranks, **options)
        return [(one.W, one.H) for one in results] and results

    seconds, results = clocked(call, ROUNDS)
    return seconds, float(np.exp(np.log(results.rmse).mean()))


def problems(count: int) -> None:
    """Print seconds and the mean error of each way, and the ratio to the same mean error."""
    from joblib import Parallel, delayed

    def say(name: str, seconds: float, error: float) -> None:
        print(f"{name:40s} {seconds:8.2f} s   mean error {error:.6g}", flush=True)

    Vs, ranks = ragged(count)
    factormer.factorize_many(Vs[:20], ranks[:20])  # which may compile
    print(f"{count} problems of 96×100, ranks 2–12, {os.cpu_count()} cores")
    tenth = range(0, count, 10)
    seconds, _ = clocked(
        lambda: [factormer.factorize(Vs[k], int(ranks[k]), random_state=k) for k in tenth]
    )
    print(f"factorize, one after another: {10 * seconds:.2f} s, by a tenth")
    ours = [by_us(Vs, ranks, tol=0, max_iter=n_iter) for n_iter in LIMITS]
    for n_iter, found in zip(LIMITS, ours, strict=True):
        say(f"factorize_many, {n_iter} iterations", *found)
    say("factorize_many, tol=1e-4", *by_us(Vs, ranks))
    at_once: Any = {"n_jobs": -1, "batch_size": 20}
    with Parallel(**at_once) as pool:
        pool(delayed(by_sklearn)(V, 2, 0, 1e-4, 1) for V in Vs[:40])  # which starts the processes
        for tol, max_iter in SETTINGS:
            work = [
                delayed(by_sklearn)(V, int(rank), k, tol, max_iter)
                for k, (V, rank) in enumerate(zip(Vs, ranks, strict=True))
            ]
            seconds, errors = clocked(lambda work=work: pool(work))
            mean = float(np.exp(np.log(errors).mean()))
            say(f"scikit-learn, tol={tol:g}, max_iter={max_iter}", seconds, mean)
            as_good = [taken for taken, error in ours if error <= mean]
            ratio = f"{seconds / min(as_good):.1f} times" if as_good else "not reached"
            print(f"    to the same mean error: {ratio}", flush=True)


def replicates(name: str, count: int, single: int) -> None:
    """Print the seconds of each way for one matrix, and their ratio."""
    V: Any
    if name in SIZES:
        V = exponential(*SIZES[name], RANK, seed=0, noise=0.2)
    else:
        V = find([f"{name}:{RANK}"])[0].load()
    factormer.factorize_many(V, [RANK], n_init=3, max_iter=5)  # which may compile
    factormer.factorize(V, RANK, init="random", max_iter=5)
    together, results = clocked(lambda: factormer.factorize_many(V, [RANK], n_init=count))
    print(f"{name} {V.shape[0]}×{V.shape[1]}, {count} replicates at rank {RANK}")
    print(f"  factorize_many  {together:9.2f} s   median RMSE {np.median(results.rmse):.6g}")
    for solver in ("auto", "her"):
        options: dict[str, Any] = {"init": "random", "solver": solver}
        seconds, alone = clocked(
            lambda options=options: [
                factormer.factorize(V, RANK, random_state=k, **options) for k in range(single)
            ]
        )
        seconds *= count / single
        same = max(abs(a.rmse / b.rmse - 1) for a, b in zip(alone, results[:single], strict=True))
        print(
            f"  single, {solver:<4}    {seconds:9.2f} s   {seconds / together:.2f} times; errors "
            f"differ by {same:.1e}",
            flush=True,
        )


def row_by_row(parts: np.ndarray, X: np.ndarray) -> list[np.ndarray]:
    """Return coefficients by scipy."""
    return [scipy.optimize.nnls(parts.T, x)[0] for x in X]


def transform(sizes: list[int]) -> None:
    """Print a table of seconds by rank and number of rows."""
    import sklearn.decomposition

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    head = "rank | rows | exact (s) | sparse (s) | scikit-learn (s) | its error / exact | scipy (s)"
    print(f"| {head} |\n| --- | --- | --- | --- | --- | --- | --- |")
    for rank in RANKS:
        parts = rng.exponential(size=(rank, FEATURES)) * (rng.random((rank, FEATURES)) > 0.5)
        ours = factormer.NMF(rank, fixed_components=parts).fit(parts)
        theirs = sklearn.decomposition.NMF(rank, init="random", max_iter=200)  # pyright: ignore
        theirs.fit(parts)
        theirs.components_ = parts
        for m in sizes:
            weights = rng.exponential(size=(m, rank)) * (rng.random((m, rank)) > 0.5)
            X = weights @ parts + 0.1 * rng.random((m, FEATURES))
            thin = scipy.sparse.csr_array(X * (rng.random(X.shape) > 0.9))
            rounds = 20 if m == 1 else 3 if m <= 1000 else 1
            ours.transform(X[:2])
            (dense, W), (sparse, _) = (
                clocked(partial(ours.transform, V), rounds) for V in (X, thin)
            )
            slow = ratio = by_row = np.nan
            if m <= 100_000:
                slow, other = clocked(partial(theirs.transform, X))
                ratio = rmse(X, other, parts.T) / rmse(X, W, parts.T)
            if m <= 1000:
                by_row, _ = clocked(partial(row_by_row, parts, X))
            print(
                f"| {rank} | {m} | {dense:.3g} | {sparse:.3g} | {slow:.3g} | {ratio:.4f} "
                f"| {by_row:.3g} |",
                flush=True,
            )


def main(name: str) -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if name == "many":
        parser.add_argument("count", type=int, nargs="?", default=2000)
        problems(parser.parse_args().count)
    elif name == "replicates":
        parser.add_argument("--count", type=int, default=100)
        parser.add_argument("--single", type=int, default=5)
        parser.add_argument("names", nargs="*", default=["dense", "bbc_news", "middle", "small"])
        asked = parser.parse_args()
        for matrix in asked.names:
            replicates(matrix, asked.count, asked.single)
    else:
        parser.add_argument("rows", type=int, nargs="*", default=[1, 1000, 100_000, 1_000_000])
        transform(parser.parse_args().rows)
