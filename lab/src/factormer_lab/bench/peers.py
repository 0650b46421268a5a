"""factormer beside every peer that is installed: seconds and iterations to the best error known.

Each contestant is called as a black box for a growing number of iterations k, from nothing, until
one call outlasts the budget or the error falls no further. The clock covers the whole call. Each
has a process of its own, and they take turns, so that all see the same load. Errors are computed
here, in float64. The best error of a matrix is the least that anyone reached; the targets are to be
within 1 % and 0.1 % of it.
On a machine with other work the figures mean nothing: threads that wait for each other measure it.
`make bench NAME=peers` runs it; with FACTORMER_DATA, on the matrices of that folder too.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse
import torch

from factormer_lab.bench.cases import EXACT, Case, exponential, find, rmse
from factormer_lab.bench.contestants import CONTESTANTS, Run, coefficients
from factormer_lab.bench.environment import environment, version

GRID = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000, 3000, 5000)
TARGETS = {"1 %": 1.01, "0.1 %": 1.001}
REFERENCE = "sklearn-cd"
QUICK_CASES = ["exponential", "topics", "digits"]
QUICK_ITERATIONS = 50
_ENOUGH = 1.5  # seconds of calls after which none is repeated
_HANGS = 600.0  # seconds after which a call is given up
_WARM = 12  # iterations; code for more than one may be other code than that for one


class Point(NamedTuple):
    """One call: its iterations, its seconds and the error it came to."""

    k: int
    seconds: float
    rmse: float


def silence() -> None:
    """Drop all that this process prints and warns of, from compiled code too."""
    sink = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(sink, stream)
    warnings.simplefilter("ignore")


@cache
def matrix(case: str) -> Any:
    """The matrix of a case, made once in each process."""
    return find([case])[0].load()


@cache
def running(name: str) -> Run:
    """A contestant that has imported and compiled what it will, on a small matrix of each kind."""
    contestant = CONTESTANTS[name]
    run, V = contestant.ready(), exponential(60, 50, 4, seed=0)
    for data in (V, scipy.sparse.csr_matrix(V * (V > 1))):
        if contestant.takes(data):
            run(data, 4, max(contestant.fewest, _WARM))
    return run


def prepare(name: str) -> str | None:
    """Warm a contestant; what keeps it from running, or None."""
    try:
        running(name)
    except ModuleNotFoundError:
        return f"not installed: pip install {CONTESTANTS[name].package}"
    return None


def call(name: str, case: str, r: int, k: int) -> Point:
    """The best time of up to three calls, with the error of the last."""
    run, V = running(name), matrix(case)
    times: list[float] = []
    while True:
        tick = time.perf_counter()
        W, H = run(V, r, k)
        times.append(time.perf_counter() - tick)
        if len(times) == 3 or sum(times) > _ENOUGH:
            break
    return Point(k, min(times), rmse(V, coefficients(V, H) if W is None else W, H))


def settled(curve: list[Point]) -> bool:
    """Whether some four times the iterations have brought the error down by 0.01 % or less."""
    return len(curve) > 3 and curve[-1].rmse >= (1 - 1e-4) * curve[-4].rmse


class Stable:
    """A process for each contestant: threads that one leaves spinning do not slow down the next."""

    def __init__(self, names: list[str]):
        spawn = multiprocessing.get_context("spawn")
        self.pools = {name: spawn.Pool(1, silence) for name in names}
        self.absent: dict[str, str] = {}
        for name, pool in self.pools.items():
            try:
                why = pool.apply_async(prepare, (name,)).get(_HANGS)
            except Exception as error:
                why = f"fails: {type(error).__name__}: {error}"
            if why:
                self.absent[name] = why

    def close(self) -> None:
        """End the processes, whatever they are at."""
        for pool in self.pools.values():
            pool.terminate()

    def race(
        self, case: Case, V: Any, longest: int, budget: float
    ) -> tuple[dict[str, list[Point]], dict[str, str]]:
        """The points of each contestant, by turns, and why one has none or no more."""
        active = [n for n in self.pools if n not in self.absent and CONTESTANTS[n].takes(V)]
        curves: dict[str, list[Point]] = {name: [] for name in active}
        failed: dict[str, str] = {}
        for k in (k for k in GRID if k <= longest):
            for name in [n for n in active if k >= CONTESTANTS[n].fewest]:
                try:
                    called = self.pools[name].apply_async(call, (name, case.name, case.rank, k))
                    point = called.get(_HANGS)
                except Exception as error:
                    failed[name] = f"fails at k={k}: {type(error).__name__}: {error}"
                    active.remove(name)
                    if isinstance(error, multiprocessing.TimeoutError):
                        self.absent[name] = f"crashed, or hung for {_HANGS:g} s, on {case.name}"
                    continue
                curves[name].append(point)
                if point.seconds > budget or settled(curves[name]):
                    active.remove(name)
        return {name: curve for name, curve in curves.items() if curve}, failed


def reached(curve: list[Point], error: float) -> dict[str, float] | None:
    """The least seconds in which the error was reached, with the iterations; None where never."""
    fast = min((p for p in curve if p.rmse <= error), key=lambda p: p.seconds, default=None)
    return fast and {"seconds": fast.seconds, "iterations": fast.k}


def judge(curves: dict[str, list[Point]]) -> dict[str, Any]:
    """How soon each contestant was near the best error that anyone reached."""
    best = max(min(p.rmse for curve in curves.values() for p in curve), EXACT)
    return {
        "best_rmse": best,
        "contestants": {
            name: {
                "to": {label: reached(curve, best * by) for label, by in TARGETS.items()},
                "excess": max(min(p.rmse for p in curve) / best - 1, 0),
                "curve": [p._asdict() for p in curve],
            }
            for name, curve in curves.items()
        },
    }


def summary(rows: list[dict[str, Any]], budget: float) -> dict[str, Any]:
    """Geometric mean of the seconds of each contestant over those of the reference, by target.

    Where a target was not reached, that counts as the budget, or the longest call if that is more.
    """

    def seconds(row: dict[str, Any], name: str, label: str) -> float:
        one = row["contestants"][name]
        longest = max(p["seconds"] for p in one["curve"])
        return one["to"][label]["seconds"] if one["to"][label] else max(budget, longest)

    means: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row["contestants"]):
        shared = [row for row in rows if {name, REFERENCE} <= row["contestants"].keys()]
        if not shared:
            continue
        means[name] = {"cases": len(shared)}
        for label in TARGETS:
            logs = [
                math.log(seconds(row, name, label) / seconds(row, REFERENCE, label))
                for row in shared
            ]
            hits = sum(row["contestants"][name]["to"][label] is not None for row in shared)
            means[name][label] = {"ratio": math.exp(sum(logs) / len(logs)), "reached": hits}
    return means


def case_table(row: dict[str, Any]) -> str:
    """One case in markdown."""
    heads = "".join(f" s to {label} | iterations |" for label in TARGETS)
    lines = [
        f"## {row['case']}: {row['kind']} {row['shape'][0]}×{row['shape'][1]}, rank {row['rank']}",
        "",
        f"Best RMSE {row['best_rmse']:.5g}"
        + (" (an exact fit: errors below count as this)." if row["best_rmse"] <= EXACT else "."),
        "",
        f"| contestant |{heads} final excess |",
        "|---|" + "--:|" * (2 * len(TARGETS) + 1),
    ]
    for name, one in row["contestants"].items():
        cells = ""
        for label in TARGETS:
            hit = one["to"][label]
            cells += f" {hit['seconds']:.3g} | {hit['iterations']} |" if hit else " – | – |"
        lines.append(f"| {name} |{cells} {100 * one['excess']:.2f} % |")
    lines += [f"\n{name} {why}." for name, why in row["failed"].items()]
    return "\n".join(lines)


def summary_table(means: dict[str, Any], budget: float) -> str:
    """The geometric means in markdown."""
    heads = "".join(f" to {label} | reached |" for label in TARGETS)
    lines = [
        f"## Seconds over those of {REFERENCE}, geometric mean",
        "",
        f"Less is better. Not reached counts as {budget:g} s, or as the longest call if longer.",
        "",
        f"| contestant |{heads}",
        "|---|" + "--:|" * (2 * len(TARGETS)),
    ]
    for name, mean in means.items():
        cells = "".join(
            f" {mean[label]['ratio']:.2f} | {mean[label]['reached']} of {mean['cases']} |"
            for label in TARGETS
        )
        lines.append(f"| {name} |{cells}")
    return "\n".join(lines)


def contestants_table(names: list[str], absent: dict[str, str]) -> str:
    """Versions and settings in markdown."""
    lines = [
        "## Contestants",
        "",
        "All but what is named is by default; all in float64.",
        "",
        "| contestant | package | call | |",
        "|---|---|---|---|",
    ]
    for name in names:
        one = CONTESTANTS[name]
        package = f"{one.package} {version(one.package) or ''}".strip()
        lines.append(f"| {name} | {package} | `{one.settings}` | {absent.get(name, one.remark)} |")
    return "\n".join(lines)


def main() -> int:
    """Race, print the tables, write them with the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", metavar="NAME[:RANK]", help="matrices; default all")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="contestants; default all")
    parser.add_argument("--seconds", type=float, help="a call that outlasts this is the last; 5")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    parser.add_argument(
        "--quick", action="store_true", help="three cases, half a second, 50 iterations"
    )
    options = parser.parse_args()
    budget = options.seconds or (0.5 if options.quick else 5.0)
    longest = QUICK_ITERATIONS if options.quick else GRID[-1]
    names = options.methods or list(CONTESTANTS)
    if unknown := set(names) - CONTESTANTS.keys():
        raise SystemExit(f"there is no method {unknown}; choose of {', '.join(CONTESTANTS)}")
    cases = find(options.cases or (QUICK_CASES if options.quick else None))

    info = environment(CONTESTANTS[name].package for name in names)
    info["torch_threads"] = torch.get_num_threads()
    stable = Stable(names)
    for name, why in stable.absent.items():
        print(f"{name} {why}")
    rows, texts = [], []
    for case in cases:
        V = case.load()
        curves, failed = stable.race(case, V, longest, budget)
        if not curves:
            print(f"{case.name}: no contestant came to an end: {failed}")
            continue
        share = (
            f"sparse ({V.nnz / math.prod(V.shape):.1%})" if scipy.sparse.issparse(V) else "dense"
        )
        head = {"case": case.name, "kind": share, "shape": V.shape, "rank": case.rank}
        rows.append(head | {"failed": failed} | judge(curves))
        texts.append(case_table(rows[-1]))
        print(f"\n{texts[-1]}", flush=True)
    stable.close()
    means = summary(rows, budget)
    if means:
        texts.append(summary_table(means, budget))
        print(f"\n{texts[-1]}")

    texts += [contestants_table(names, stable.absent), "## Environment"]
    texts.append("\n".join(f"- {key}: {value}" for key, value in info.items()))
    numbers = {
        "budget_seconds": budget,
        "grid": GRID,
        "targets": TARGETS,
        "calls": {name: CONTESTANTS[name].settings for name in names},
        "absent": stable.absent,
        "cases": rows,
        "summary": means,
        "environment": info,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "peers.md").write_text("\n\n".join(["# Peers", *texts]) + "\n", encoding="utf-8")
    (options.out / "peers.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(f"\ntables and numbers: {options.out / 'peers.md'}, {options.out / 'peers.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
