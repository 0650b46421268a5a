"""Time NMF.transform for one row to a million, beside scikit-learn's and scipy's row by row.

make bench NAME=transform ARGS="[ROWS …]"
"""

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
import sklearn.decomposition

from factormer import NMF

FEATURES, RANKS = 100, (10, 40)


def seconds(call: Callable[[Any], Any], X: Any, repeat: int = 1) -> float:
    """The least time of a few calls."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        call(X)
        times.append(time.perf_counter() - started)
    return min(times)


def row_by_row(parts: np.ndarray, X: np.ndarray) -> list[np.ndarray]:
    """Coefficients by scipy."""
    return [scipy.optimize.nnls(parts.T, x)[0] for x in X]


def main() -> None:
    """Print a table."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    sizes = [int(rows) for rows in sys.argv[1:]] or [1, 1000, 100_000, 1_000_000]
    head = "rank | rows | exact (s) | sparse (s) | scikit-learn (s) | its error / exact | scipy (s)"
    print(f"| {head} |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for rank in RANKS:
        parts = rng.exponential(size=(rank, FEATURES)) * (rng.random((rank, FEATURES)) > 0.5)
        ours = NMF(rank, fixed_components=parts).fit(parts)
        theirs = sklearn.decomposition.NMF(rank, init="random", max_iter=200)  # pyright: ignore
        theirs.fit(parts)
        theirs.components_ = parts
        for m in sizes:
            weights = rng.exponential(size=(m, rank)) * (rng.random((m, rank)) > 0.5)
            X = weights @ parts + 0.1 * rng.random((m, FEATURES))
            few = X * (rng.random(X.shape) > 0.9)
            thin = scipy.sparse.csr_array(few)
            repeat = 20 if m == 1 else 3 if m <= 1000 else 1
            ours.transform(X[:2])
            row = [seconds(ours.transform, V, repeat) for V in (X, thin)]
            ratio = np.nan
            if m <= 100_000:
                row.append(seconds(theirs.transform, X))
                errors = [np.linalg.norm(X - e.transform(X) @ parts) for e in (theirs, ours)]
                ratio = errors[0] / errors[1]
            else:
                row.append(np.nan)
            by_row = np.nan
            if m <= 1000:
                by_row = seconds(partial(row_by_row, parts), X)
            figures = " | ".join(f"{value:.3g}" for value in row)
            print(f"| {rank} | {m} | {figures} | {ratio:.4f} | {by_row:.3g} |", flush=True)


if __name__ == "__main__":
    main()
