"""Measure how near calls come to the best error known: that of 40 starts of several kinds.

    make best CASES=optimum                          # first, once: hours
    make bench NAME=optimum ARGS="digits:10 parts"   # some cases; all where none is named

Each case is factorized by default from SEEDS seeds, and with n_init=10 from two. An excess is that
of the error over the least of the 40 starts in `best.json`; an error below `errors.EXACT` counts as
that. Seconds are those of one call, the least of ROUNDS, and those to 1 % are read off the trace.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from factormer_lab.bench.cases import OPTIMUM, find
from factormer_lab.bench.compare import BEST
from factormer_lab.bench.errors import EXACT, rmse

SEEDS, ROUNDS, N_INIT = 5, 2, 10
NEAR = 1e-3  # an excess up to which a call is at the optimum


def called(V: Any, rank: int, best: float, seed: int, **options: Any) -> tuple[float, float, float]:
    """Return the seconds of a call, its seconds to 1 %, and the excess of its error."""
    from factormer import factorize

    begun = time.perf_counter()
    result = factorize(V, rank, random_state=seed, **options)
    seconds = time.perf_counter() - begun
    near = np.flatnonzero(result.trace.rmse <= max(1.01 * best, EXACT))
    to = float(result.trace.seconds[near[0]]) if len(near) else np.inf
    return seconds, to, max(rmse(V, result.W, result.H), EXACT) / max(best, EXACT) - 1


def main() -> None:
    """Print a row a case, and the shares of calls that are near."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=OPTIMUM, metavar="NAME:RANK")
    options = parser.parse_args()
    best = json.loads(BEST.read_text())
    known = {key.partition("/")[2]: one["error"] for key, one in best.items() if key[:2] != "kl"}
    single, several, costs = [], [], []
    print("case                           excess %: median worst     ms  to 1 % | n_init=10 times")
    for case in find(options.cases, absent=options.cases is not OPTIMUM):
        name = f"{case.name}:{case.rank}"
        if name not in known:
            print(f"{name:28s} is unknown: make best CASES=optimum/{name}")
            continue
        V, least = case.load(), known[name]
        called(V, case.rank, least, 0)  # which may compile
        told = np.array(
            [[called(V, case.rank, least, seed) for seed in range(SEEDS)] for _ in range(ROUNDS)]
        )
        seconds, to = told[..., :2].min(axis=0).mean(axis=0)
        above = told[0, :, 2]
        runs = np.array([called(V, case.rank, least, seed, n_init=N_INIT) for seed in range(2)])
        single.extend(above <= NEAR)
        several.extend(runs[:, 2] <= NEAR)
        costs.append(runs[:, 0].mean() / seconds)
        worst = 100 * runs[:, 2].max()
        print(
            f"{name:38s} {100 * np.median(above):9.3f} {100 * above.max():6.2f} "
            f"{1e3 * seconds:7.1f} {1e3 * to:7.1f} | {worst:8.3f} {costs[-1]:5.1f}",
            flush=True,
        )
    if costs:
        print(
            f"within 0.1 %: {np.mean(single):.0%} of calls by default, {np.mean(several):.0%} with "
            f"n_init={N_INIT}, which takes {statistics.geometric_mean(costs):.1f} times as long"
        )
