"""Whether the network that "auto" asks in slow runs pays: seconds to 1 % and 0.1 %, one call a way.

    python benchmarks/slow_runs.py [CASE …]      # "name:rank" as in networks.py
    python benchmarks/slow_runs.py --clock processor --rounds 2 --ways none any-rank auto

Beside `networks.py`, where each number of iterations is a call of its own: here each way is one
default call, --iterations long, in turn with the others. At each iteration the least seconds of
--rounds count, start included, and errors are those of the points passed on the way, computed
afterwards in float64. The default cases are UNSEEN at ranks from 30 on: no threshold was set by
them. The last lines say how many times faster it is where "auto" came to ask the network, and on
all. On a machine with other work, `--clock processor` counts processor seconds, with one thread of
each library (set OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import EXACT, find, rmse
from environment import environment

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.run.choose import choose
from factormer.run.execute import execute
from factormer.run.request import Request
from factormer.run.trace import Trace
from networks import CLOCKS, TARGETS, UNSEEN, Curve, iterations_to, say, seconds_to, speed

FIRST, EVERY = 30, 5  # points are looked at up to there, and from then on now and then
Point = tuple[int, float, Factors]


def curves(
    V: np.ndarray, rank: int, ways: list[str], clock: str, rounds: int, n_iter: int
) -> dict[str, Curve]:
    """Seconds and errors of each way."""
    for way in ways:  # which may compile
        call(V, rank, way, 12, clock)
    found: dict[str, Curve] = {}
    for _ in range(rounds):
        for way in ways:
            passed = call(V, rank, way, n_iter, clock)
            before = found.get(way) or [(k, math.inf, rmse(V, x.W, x.H)) for k, _, x in passed]
            pairs = zip(before, passed, strict=True)
            found[way] = [(k, min(least, now), error) for (k, least, error), (_, now, _) in pairs]
    return found


def call(V: np.ndarray, rank: int, way: str, n_iter: int, clock: str) -> list[Point]:
    """Points of one call: the iteration, seconds up to there, and the point in float32."""
    now, passed = CLOCKS[clock], []
    begun, aside = now(), 0.0  # and seconds spent here

    def watch(x: Factors, trace: Trace) -> bool:
        nonlocal aside
        came, k = now(), trace.last.iteration
        if k <= FIRST or k % EVERY == 0:
            passed.append((k, came - begun - aside, Factors(x.W.float(), x.H.float())))
        aside += now() - came
        return False

    matrix, accelerator = Dense(torch.from_numpy(V)), None if way == "none" else way
    request = Request.of(matrix, rank, accelerator=accelerator, max_iter=n_iter, tol=0.0)
    execute(choose(request), watch=watch)
    return passed


def asks(found: dict[str, Curve]) -> bool:
    """Whether "auto" went another way than "none": the points of the two differ."""
    return "auto" in found and [e for *_, e in found["auto"]] != [e for *_, e in found["none"]]


def verdicts(rows: list[dict[str, Any]], ways: list[str]) -> list[str]:
    """How many times faster each way is than "none", where "auto" asks a network and on all."""
    lines = []
    for group, members in {
        "where auto asks the network": [row for row in rows if row["asks"]],
        "where it does not": [row for row in rows if not row["asks"]],
        "all": rows,
    }.items():
        for way in ways[1:] if members else ():
            parts = []
            for label in TARGETS:
                known = [speed(row, way, label) for row in members]
                both = [s for s in known if 0 < s < math.inf]
                mean = math.exp(np.log(both).mean()) if both else math.nan
                only = sum(s == math.inf for s in known), sum(s == 0 for s in known)
                parts.append(
                    f"{mean:.2f} times to {label} ({len(both)} matrices, on {only[0]} it alone "
                    f"arrives, on {only[1]} the other alone)"
                )
            lines.append(f"{group}, {way}: " + ", ".join(parts))
    return lines


def main() -> None:
    """Race, print a row a matrix and the verdicts, and keep what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="NAME[:RANK]")
    parser.add_argument("--ways", nargs="+", default=["none", "auto"])
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ways = list(dict.fromkeys(["none", *options.ways]))
    own = {case.name: case for case in UNSEEN}
    named = [own[name] for name in options.cases if name in own]
    others = [name for name in options.cases if name not in own]
    unseen = [case for case in UNSEEN if case.rank >= 30]
    cases = [*named, *(find(others) if others else ())] if options.cases else unseen
    rows: list[dict[str, Any]] = []
    say(f"{'':28s}" + "".join(f"{way:>22s}" for way in ways) + f"   to {' and '.join(TARGETS)}")
    for case in cases:
        V = np.ascontiguousarray(case.load())
        found = curves(V, case.rank, ways, options.clock, options.rounds, options.iterations)
        best = max(min(e for curve in found.values() for *_, e in curve), EXACT)
        seconds = {
            way: {label: seconds_to(curve, best * q) for label, q in TARGETS.items()}
            for way, curve in found.items()
        }
        row = {"case": case.name, "rank": case.rank, "shape": V.shape, "seconds": seconds}
        rows.append(row | {"asks": asks(found), "curves": found})
        told = "".join(
            f"{'  '.join(f'{s:.3f}' for s in seconds[way].values()):>20s} s" for way in ways
        )
        counts = "; ".join(
            ", ".join(f"{iterations_to(found[way], best * q):g}" for q in TARGETS.values())
            for way in ways
        )
        asked = "  (asks)" if rows[-1]["asks"] else ""
        say(f"{case.name + ':' + str(case.rank):28s}{told}   iterations {counts}{asked}")
    lines = verdicts(rows, ways)
    say("\n".join(lines))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        kept = {"environment": environment(), "clock": options.clock, "rows": rows}
        text = json.dumps(kept | {"verdicts": lines}, indent=1, default=str)
        (options.out / "slow_runs.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
