"""Seconds by which calls end after their time limit, on matrices that fill a good part of memory.

Each limit falls into another part of a call: the check of V, its sketch, the start, iterations in
float32 and float64, the refinement. `make bench NAME=limits` runs it; on a busy machine figures
are upper bounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from factormer import NMF, factorize, factorize_many
from factormer.penalties import L1

LIMITS = (0.05, 0.3, 1.0, 2.5)
ENDLESS = {"tol": 0.0, "max_iter": 10**6}
Call = Callable[[float], Any]


def dense(m: int, n: int, dtype: Any = np.float64) -> np.ndarray:
    """Ten planted components and noise, made by blocks of rows."""
    rng = np.random.default_rng(0)
    W, H = rng.random((m, 10), np.float32), rng.random((10, n), np.float32)
    V = np.empty((m, n), dtype)
    for a in range(0, m, 500):
        V[a : a + 500] = W[a : a + 500] @ H
        V[a : a + 500] += 0.5 * rng.random(V[a : a + 500].shape, np.float32)
    return V


def sparse(m: int, n: int, nnz: int) -> Any:
    """Entries at random places."""
    rng = np.random.default_rng(0)
    places = (rng.integers(0, m, nnz), rng.integers(0, n, nnz))
    return scipy.sparse.csr_array((rng.random(nnz), places), shape=(m, n))


def cases(share: float) -> dict[str, dict[str, Call]]:
    """Calls by the matrix that they need; each takes a limit."""
    m, n, nnz = int(20000 * share), int(5000 * share), int(2e7 * share**2)

    def large(V: Any) -> dict[str, Call]:
        return {
            "rank 20": lambda s: factorize(V, 20, time_limit=s, **ENDLESS),
            "rank 20, random": lambda s: factorize(V, 20, time_limit=s, init="random", **ENDLESS),
            "rank 20, default tol": lambda s: factorize(V, 20, time_limit=s),
            "rank 100": lambda s: factorize(V, 100, time_limit=s),
        }

    V = dense(m, n)
    more: dict[str, Call] = {
        "rank 600": lambda s: factorize(V, 600, time_limit=s),
        "L1": lambda s: factorize(V, 20, time_limit=s, regularize_W=L1(0.1), **ENDLESS),
        "10 starts": lambda s: factorize(V, 20, n_init=10, time_limit=s, **ENDLESS),
        "200 starts": lambda s: factorize(V, 20, n_init=200, time_limit=s, **ENDLESS),
        "NMF.fit": lambda s: NMF(20, time_limit=s, **ENDLESS).fit(V),
    }
    S, small = sparse(10 * m, 10 * n, nnz), [dense(96, 100)] * 5000
    return {
        f"dense {m}x{n}": large(V) | more,
        "float32, by columns": large(np.asfortranarray(V.astype(np.float32))),
        f"sparse {10 * m}x{10 * n}, {nnz:.0e}": large(S),
        "5000 of 96x100": {"rank 8": lambda s: factorize_many(small, 8, time_limit=s, **ENDLESS)},
        "1000 replicates": {
            "rank 10": lambda s: factorize_many(V[:3000, :2000], 10, n_init=1000, time_limit=s)
        },
    }


def main() -> None:
    """Measure, and print a row for each call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the sides of the matrices")
    share = parser.parse_args().share
    factorize(dense(300, 200), 5)
    print(f"{'seconds after the limit of':50}", *(f"{s:6.2f}" for s in LIMITS))
    for matrix, calls in cases(share).items():
        for name, call in calls.items():
            late = []
            for limit in LIMITS:
                begun = time.perf_counter()
                call(limit)
                late.append(time.perf_counter() - begun - limit)
            print(f"{matrix + ', ' + name:50}", *(f"{s:+6.2f}" for s in late), flush=True)


if __name__ == "__main__":
    main()
