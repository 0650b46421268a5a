"""Race packages on matrices: seconds and iterations to the best error known.

    make bench NAME=peers ARGS='--cases digits:16 race --seconds 5'
    make bench NAME=kl
    make bench NAME=peers ARGS='--methods factormer "factormer solver=hals init=random"'

Each contestant is called as a black box for a growing number of iterations k, from nothing, until
one call outlasts the budget or the error falls no further. The clock covers the whole call. Each
has a process of its own, and they take turns, so that all see the same load. Errors are computed
here, in float64. The best error of a matrix is the least that anyone reached; the targets are to be
within 1 % and 0.1 % of it. A race is one or several heats, each of cases and contestants: of
packages ("peers"), the same for counts ("kl"), of what "auto" may choose ("choices"), and of calls
without and with a network on matrices that no threshold was set by ("networks").
On a machine with other work the figures mean nothing: threads that wait for each other measure it.
With FACTORMER_DATA, there are the matrices of that folder, too.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse

from factormer_lab.bench.cases import UNSEEN, Case, exponential, find
from factormer_lab.bench.contestants import COUNTING, PEERS, Run, coefficients, contestant
from factormer_lab.bench.environment import environment, version
from factormer_lab.bench.errors import ERRORS, EXACT

GRID = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000, 3000, 5000)
TARGETS = {"1 %": 1.01, "0.1 %": 1.001}
QUICK_CASES = ["exponential", "topics", "digits"]
QUICK_ITERATIONS = 50
_ENOUGH = 1.5  # seconds of calls after which none is repeated
_HANGS = 600.0  # seconds after which a call is given up
_WARM = 12  # iterations; code for more than one may be other code than that for one


class Heat(NamedTuple):
    """Cases, and who races on them; the second is the reference of the summary."""

    cases: list[str] | None  # by default, the usual ones
    methods: list[str]


class Race(NamedTuple):
    """Heats under one title, and the loss that all of them are judged by."""

    title: str
    heats: list[Heat]
    loss: str = "frobenius"


def alternatives(option: str, *values: str, plain: str = "") -> list[str]:
    """Return calls that differ in one option, none of them with a network."""
    return [f"factormer accelerator=None {option}={value} {plain}".strip() for value in values]


STARTS = alternatives("init", "auto", "random", "rotated", "nndsvd")
SOLVERS = ("auto", "her", "hals", "her-admm", "mu")
NETWORKS = [f"factormer accelerator={name}" for name in ("any-rank", "None", "auto")]
RACES = {
    "peers": Race("Peers", [Heat(None, [one.name for one in PEERS])]),
    "kl": Race(
        "Kullback–Leibler",
        [
            Heat(
                [
                    *("reuters21578:20", "brca_sbs96:8", "brca_resampled:8", "spectrogram:25"),
                    *("audio_piano_spectrogram:15", "audio_piano_spectrogram:25"),
                ],
                [one.name for one in (COUNTING[0], *COUNTING[2:], COUNTING[1])],
            )
        ],
        "kullback-leibler",
    ),
    "choices": Race(
        "Automatic choices",
        [
            Heat(["race-small:10", "noisy:20", "digits:16", "topics:10"], STARTS),
            Heat(["race-small:10", "topics:10"], alternatives("solver", *SOLVERS)),
            Heat(["noisy:20"], alternatives("solver", *SOLVERS, plain="init=rotated")),
        ],
    ),
    "networks": Race("Networks", [Heat([case.name for case in UNSEEN], NETWORKS)]),
}


class Point(NamedTuple):
    """One call: its iterations, its seconds and the error that it came to."""

    k: int
    seconds: float
    error: float


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
    one = contestant(name)
    run, V = one.ready(), exponential(60, 50, 4, seed=0)
    for data in (V, scipy.sparse.csr_matrix(V * (V > 1))):
        if one.takes(data):
            run(data, 4, max(one.fewest, _WARM))
    return run


def prepare(name: str) -> str | None:
    """Warm a contestant; what keeps it from running, or None."""
    try:
        running(name)
    except ModuleNotFoundError:
        return f"not installed: pip install {contestant(name).package}"
    return None


def call(name: str, case: str, r: int, k: int, loss: str) -> Point:
    """The best time of up to three calls, with the error of the last."""
    run, V = running(name), matrix(case)
    times: list[float] = []
    while True:
        tick = time.perf_counter()
        W, H = run(V, r, k)
        times.append(time.perf_counter() - tick)
        if len(times) == 3 or sum(times) > _ENOUGH:
            break
    W = coefficients(V, H) if W is None else W
    return Point(k, min(times), ERRORS[loss](V, W, H))


def settled(curve: list[Point]) -> bool:
    """Whether some four times the iterations have brought the error down by 0.01 % or less."""
    return len(curve) > 3 and curve[-1].error >= (1 - 1e-4) * curve[-4].error


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
        self, case: Case, V: Any, loss: str, longest: int, budget: float
    ) -> tuple[dict[str, list[Point]], dict[str, str]]:
        """The points of each contestant, by turns, and why one has none or no more."""
        active = [n for n in self.pools if n not in self.absent and contestant(n).takes(V)]
        curves: dict[str, list[Point]] = {name: [] for name in active}
        failed: dict[str, str] = {}
        for k in (k for k in GRID if k <= longest):
            for name in [n for n in active if k >= contestant(n).fewest]:
                try:
                    called = self.pools[name].apply_async(
                        call, (name, case.name, case.rank, k, loss)
                    )
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
    fast = min((p for p in curve if p.error <= error), key=lambda p: p.seconds, default=None)
    return fast and {"seconds": fast.seconds, "iterations": fast.k}


def judge(curves: dict[str, list[Point]], loss: str) -> dict[str, Any]:
    """Return how soon each contestant was near the best error that anyone reached."""
    floor = EXACT if loss == "frobenius" else 0.0
    best = max(min(p.error for curve in curves.values() for p in curve), floor)
    return {
        "best": best,
        "contestants": {
            name: {
                "to": {label: reached(curve, best * by) for label, by in TARGETS.items()},
                "excess": max(min(p.error for p in curve) / best - 1, 0),
                "curve": [p._asdict() for p in curve],
            }
            for name, curve in curves.items()
        },
    }


def summary(rows: list[dict[str, Any]], reference: str, budget: float) -> dict[str, Any]:
    """Geometric mean of the seconds of each contestant over those of the reference, by target.

    Where a target was not reached, that counts as the budget, or the longest call if that is more.
    """

    def seconds(row: dict[str, Any], name: str, label: str) -> float:
        one = row["contestants"][name]
        longest = max(p["seconds"] for p in one["curve"])
        return one["to"][label]["seconds"] if one["to"][label] else max(budget, longest)

    means: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row["contestants"]):
        shared = [row for row in rows if {name, reference} <= row["contestants"].keys()]
        if not shared:
            continue
        means[name] = {"cases": len(shared)}
        for label in TARGETS:
            logs = [
                math.log(seconds(row, name, label) / seconds(row, reference, label))
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
        f"Best error {row['best']:.5g}"
        + (" (an exact fit: errors below count as this)." if row["best"] <= EXACT else "."),
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


def summary_table(means: dict[str, Any], reference: str, budget: float) -> str:
    """The geometric means in markdown."""
    heads = "".join(f" to {label} | reached |" for label in TARGETS)
    lines = [
        f"## Seconds over those of {reference}, geometric mean",
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
        one = contestant(name)
        package = f"{one.package} {version(one.package) or ''}".strip()
        lines.append(f"| {name} | {package} | `{one.settings}` | {absent.get(name, one.remark)} |")
    return "\n".join(lines)


def heat(
    stable: Stable, cases: list[Case], loss: str, longest: int, budget: float
) -> list[dict[str, Any]]:
    """Race on each case, and print a table of each."""
    rows = []
    for case in cases:
        V = case.load()
        curves, failed = stable.race(case, V, loss, longest, budget)
        if not curves:
            print(f"{case.name}: no contestant came to an end: {failed}")
            continue
        share = V.nnz / math.prod(V.shape) if scipy.sparse.issparse(V) else 1
        kind = f"sparse ({share:.1%})" if share < 1 else "dense"
        head = {"case": case.name, "kind": kind, "shape": V.shape, "rank": case.rank}
        rows.append(head | {"failed": failed} | judge(curves, loss))
        print(f"\n{case_table(rows[-1])}", flush=True)
    return rows


def main(name: str) -> int:
    """Race, print the tables, write them with the numbers."""
    race = RACES[name]
    parser = argparse.ArgumentParser(description=race.title)
    parser.add_argument("--cases", nargs="+", metavar="NAME[:RANK]", help="matrices, in one heat")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="contestants, in one heat")
    parser.add_argument("--loss", choices=ERRORS, default=race.loss, help="that judges")
    parser.add_argument("--seconds", type=float, help="a call that outlasts this is the last; 5")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    parser.add_argument(
        "--quick", action="store_true", help="three cases, half a second, 50 iterations"
    )
    options = parser.parse_args()
    budget = options.seconds or (0.5 if options.quick else 5.0)
    longest = QUICK_ITERATIONS if options.quick else GRID[-1]
    heats = race.heats
    if options.cases or options.methods or options.quick:
        cases = options.cases or (QUICK_CASES if options.quick else heats[0].cases)
        heats = [Heat(cases, options.methods or heats[0].methods)]

    texts, kept = [], []
    for cases, methods in heats:
        reference = methods[min(1, len(methods) - 1)]
        stable = Stable(methods)
        for method, why in stable.absent.items():
            print(f"{method} {why}")
        rows = heat(stable, find(cases, absent=bool(options.cases)), options.loss, longest, budget)
        stable.close()
        means = summary(rows, reference, budget)
        texts += [case_table(row) for row in rows]
        if means:
            texts.append(summary_table(means, reference, budget))
            print(f"\n{texts[-1]}")
        texts.append(contestants_table(methods, stable.absent))
        calls = {method: contestant(method).settings for method in methods}
        kept.append({"calls": calls, "absent": stable.absent, "cases": rows, "summary": means})
    raced = [method for one in heats for method in one.methods]
    info = environment(contestant(method).package for method in ("factormer", *raced))
    texts += ["## Environment", "\n".join(f"- {key}: {value}" for key, value in info.items())]
    numbers = {"budget_seconds": budget, "grid": GRID, "targets": TARGETS, "loss": options.loss}
    numbers |= {"heats": kept, "environment": info}
    options.out.mkdir(parents=True, exist_ok=True)
    page, file = (options.out / f"{name}{suffix}" for suffix in (".md", ".json"))
    page.write_text("\n\n".join([f"# {race.title}", *texts]) + "\n", encoding="utf-8")
    file.write_text(json.dumps(numbers) + "\n", encoding="utf-8")
    print(f"\ntables and numbers: {page}, {file}")
    return 0
