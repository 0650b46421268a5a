"""What each automatic choice is worth: seconds to 1 % of the best error, beside the alternatives.

    make bench NAME=choices ARGS="[--seconds 3]"

Every row runs the same matrix with the same options but for the one in question; the best of three
calls counts, start included, for a growing number of iterations.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits

import factormer

GRID = [1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500]


def product(m: int, n: int, r: int, *, noise: float = 0.0, density: float = 1.0) -> np.ndarray:
    """A matrix of exponential factors, some of their entries zero, with noise."""
    rng = np.random.default_rng(0)
    W, H = (rng.exponential(r**-0.5, (s, r)) * (rng.random((s, r)) < density) for s in (m, n))
    return np.maximum(W @ H.T + noise * rng.standard_normal((m, n)), 0)


def counts(m: int, n: int, r: int) -> sp.csr_matrix:
    """Word counts of documents that mix topics, about 1 % of them not zero."""
    rng = np.random.default_rng(0)
    topics, mixtures = rng.dirichlet(np.full(n, 0.02), r), rng.dirichlet(np.full(r, 0.1), m)
    words = [rng.choice(n, 60, p=p / p.sum()) for p in mixtures @ topics]
    rows = np.repeat(np.arange(m), 60)
    return sp.csr_matrix((np.ones(len(rows)), (rows, np.concatenate(words))), (m, n))


STARTS = [{"init": name} for name in ("auto", "random", "rotated", "nndsvd")]
SOLVERS = [{"solver": name} for name in ("auto", "her", "hals", "her-admm", "mu")]
CASES: dict[str, tuple[Callable[[], Any], int, list[dict[str, Any]]]] = {
    "start, small (25×25, r=10)": (lambda: product(25, 25, 10), 10, STARTS),
    "start, large (1000×500, r=20)": (lambda: product(1000, 500, 20, noise=0.01), 20, STARTS),
    "start, digits (1797×64, r=16)": (lambda: load_digits(return_X_y=True)[0], 16, STARTS),
    "start, sparse (3000×2000, r=10)": (lambda: counts(3000, 2000, 10), 10, STARTS),
    "solver, small": (lambda: product(25, 25, 10), 10, SOLVERS),
    "solver, large (compressed first)": (
        lambda: product(2000, 1500, 20, noise=0.01),
        20,
        [{"init": "rotated", **s} for s in SOLVERS],
    ),
    "solver, sparse (float32 first)": (lambda: counts(3000, 2000, 10), 10, SOLVERS),
}


def rmse(V: Any, W: np.ndarray, H: np.ndarray) -> float:
    """Root mean square error."""
    dense = V.toarray() if sp.issparse(V) else V
    return float(np.sqrt(np.mean((W @ H.T - dense) ** 2)))


def curve(
    V: Any, rank: int, options: dict[str, Any], limit: float
) -> Iterator[tuple[float, float]]:
    """Yield seconds and error for a growing number of iterations."""
    for k in GRID:
        best, result = np.inf, None
        for _ in range(3):
            tick = time.perf_counter()
            result = factormer.factorize(V, rank, max_iter=k, tol=0, accelerator=None, **options)
            best = min(best, time.perf_counter() - tick)
        assert result is not None
        yield best, rmse(V, result.W, result.H)
        if best > limit:
            return


def main() -> None:
    """Print a table for each choice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="a call this long ends a curve")
    limit = parser.parse_args().seconds
    factormer.factorize(product(60, 50, 4), 4, max_iter=3)  # compile first
    factormer.factorize(product(600, 500, 4), 4, max_iter=30)
    for name, (make, rank, alternatives) in CASES.items():
        V = make()
        curves = [list(curve(V, rank, options, limit)) for options in alternatives]
        target = max(1.01 * min(e for c in curves for _, e in c), 1e-3)
        print(f"\n{name}\n")
        for options, points in zip(alternatives, curves, strict=True):
            seconds = min((t for t, e in points if e <= target), default=np.inf)
            label = ", ".join(f"{key}={value}" for key, value in options.items())
            print(f"    {label:32s} {1e3 * seconds:9.1f} ms")


if __name__ == "__main__":
    main()
