"""The gain of a smaller tol: iterations, seconds, and how far the error is from the best known.

The best error known of a matrix is the least of all runs here, those of several seeds without a
tolerance among them. `make bench NAME=tolerance` runs it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import factormer
from factormer_lab.bench.cases import Case, find
from factormer_lab.bench.environment import environment
from factormer_lab.bench.errors import EXACT, rmse

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
CASES = ["exponential", "noisy", "sparse-factors", "topics", "digits"]


def run(V: Any, r: int, *, tol: float, max_iter: int, seed: int = 0) -> dict[str, Any]:
    """One factorization by default but for these, with its error in float64."""
    tick = time.perf_counter()
    result = factormer.factorize(V, r, tol=tol, max_iter=max_iter, random_state=seed)
    seconds = time.perf_counter() - tick
    error = rmse(V, result.W, result.H)
    return {
        "iterations": result.n_iter,
        "seconds": seconds,
        "rmse": error,
        "status": result.status.name,
    }


def measure(case: Case, *, max_iter: int, repeats: int, seeds: int) -> dict[str, Any]:
    """One matrix at all tolerances."""
    V, rows = case.load(), {}
    run(V, case.rank, tol=1e-1, max_iter=20)  # compiles
    for tol in TOLERANCES:
        runs = [run(V, case.rank, tol=tol, max_iter=max_iter) for _ in range(repeats)]
        rows[tol] = min(runs, key=lambda one: one["seconds"])
    long = [run(V, case.rank, tol=0, max_iter=max_iter, seed=s)["rmse"] for s in range(seeds)]
    best = max(min([math.inf, *long, *(row["rmse"] for row in rows.values())]), EXACT)
    for row in rows.values():
        row["excess"] = max(row["rmse"] / best - 1, 0)
    return {"shape": V.shape, "rank": case.rank, "best_rmse": best, "tol": rows}


def table(name: str, result: dict[str, Any]) -> str:
    """One matrix in markdown."""
    m, n = result["shape"]
    lines = [
        f"## {name}: {m}×{n}, rank {result['rank']}, best RMSE {result['best_rmse']:.5g}",
        "",
        "| tol | iterations | seconds | excess error | |",
        "|--:|--:|--:|--:|---|",
    ]
    for tol, row in result["tol"].items():
        ended = "" if row["status"] == "CONVERGED" else row["status"]
        cells = f"{row['iterations']} | {row['seconds']:.3g} | {100 * row['excess']:.3f} %"
        lines.append(f"| {tol:.0e} | {cells} | {ended} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print the tables, write them with the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", metavar="NAME[:RANK]", default=CASES)
    parser.add_argument("--max-iter", type=int, default=2000, help="iterations at most")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the fastest counts")
    parser.add_argument("--seeds", type=int, default=3, help="long runs in search of the best")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    parser.add_argument("--quick", action="store_true", help="200 iterations, one run of each")
    options = parser.parse_args()
    if options.quick:
        options.max_iter, options.repeats, options.seeds = 200, 1, 1

    results, texts = {}, ["# What tol buys"]
    for case in find(options.cases):
        results[case.name] = measure(
            case, max_iter=options.max_iter, repeats=options.repeats, seeds=options.seeds
        )
        texts.append(table(case.name, results[case.name]))
        print(f"{texts[-1]}\n", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    numbers = {"max_iter": options.max_iter, "cases": results, "environment": environment()}
    path = options.out / "tolerance.json"
    path.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    print(f"tables and numbers: {path.with_suffix('.md')}, {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
