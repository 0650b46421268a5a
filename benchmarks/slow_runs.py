r"""Whether the network that "auto" asks in slow runs pays: seconds to 1 % and 0.1 %, a call a way.

    python benchmarks/slow_runs.py [CASE …]      # "name:rank" as in networks.py
    python benchmarks/slow_runs.py --clock processor --rounds 2 --ways none any-rank auto
    python benchmarks/slow_runs.py brca_sbs96:8 --loss kullback-leibler --solver mu-extrapolated \
        --ways none any-rank --seeds 0 1 2

Beside `networks.py`, where each number of iterations is a call of its own: here each way is one
default call, --iterations long, in turn with the others. At each iteration the least seconds of
--rounds count, start included, and errors are those of the points passed on the way, computed
afterwards in float64. The default cases are UNSEEN at ranks from 30 on: no threshold was set by
them. The last lines say how many times faster it is where "auto" came to ask the network, and on
all, and how many times fewer its iterations are. On a machine with other work, `--clock processor`
counts processor seconds, with one thread of each library (set OMP_NUM_THREADS=1
NUMBA_NUM_THREADS=1). --loss, --shares, --sparse and --solver are those of `networks.py`.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from kl import divergence

from factormer.data.factors import Factors
from factormer.data.intake import as_matrix
from factormer.run.choose import choose
from factormer.run.execute import execute
from factormer.run.request import Request
from factormer.run.trace import Trace
from factormer_lab.bench.cases import EXACT, find
from factormer_lab.bench.environment import environment
from networks import (
    CLOCKS,
    LOSSES,
    TARGETS,
    UNSEEN,
    Asked,
    Curve,
    iterations_to,
    say,
    seconds_to,
    speed,
)

FIRST, EVERY = 30, 5  # points are looked at up to there, and from then on now and then
Point = tuple[int, float, Factors]


def curves(
    V: Any, rank: int, ways: list[str], asked: Asked, seed: int, rounds: int, n_iter: int
) -> dict[str, Curve]:
    """Seconds and errors of each way."""
    for way in ways:  # which may compile
        call(V, rank, way, 12, asked, seed)
    found: dict[str, Curve] = {}
    for _ in range(rounds):
        for way in ways:
            passed = call(V, rank, way, n_iter, asked, seed)
            before = found.get(way) or [(k, math.inf, error(V, x, asked)) for k, _, x in passed]
            pairs = zip(before, passed, strict=True)
            found[way] = [(k, min(least, now), e) for (k, least, e), (_, now, _) in pairs]
    return found


def error(V: Any, x: Factors, asked: Asked) -> float:
    """That of `networks.py`; of sparse data from what is stored."""
    W, H = (F.numpy().astype(np.float64) for F in x)
    if asked.loss == "kullback-leibler" and scipy.sparse.issparse(V):
        return divergence(V, W, H) + asked.sparse * float(W.sum() + H.sum())
    return asked.error(V, W, H)


def call(V: Any, rank: int, way: str, n_iter: int, asked: Asked, seed: int) -> list[Point]:
    """Points of one call: the iteration, seconds up to there, and the point in float32."""
    now, passed = CLOCKS[asked.clock], []
    begun, aside = now(), 0.0  # and seconds spent here

    def watch(x: Factors, trace: Trace) -> bool:
        nonlocal aside
        came, k = now(), trace.last.iteration
        if k <= FIRST or k % EVERY == 0:
            passed.append((k, came - begun - aside, Factors(x.W.float(), x.H.float())))
        aside += now() - came
        return False

    accelerator = None if way == "none" else way
    options: dict[str, Any] = {"max_iter": n_iter, "tol": 0.0, "random_state": seed}
    request = Request.of(as_matrix(V), rank, accelerator=accelerator, **options, **asked.options)
    execute(choose(request), watch=watch)
    return passed


def asks(found: dict[str, Curve]) -> bool:
    """Whether "auto" went another way than "none": the points of the two differ."""
    return "auto" in found and [e for *_, e in found["auto"]] != [e for *_, e in found["none"]]


def fewer(row: dict[str, Any], way: str, label: str) -> float:
    """How many times fewer iterations than without a network; NaN where neither arrives."""
    before, after = (max(row["iterations"][each][label], 1) for each in ("none", way))
    return math.nan if math.isinf(before) and math.isinf(after) else before / after


def verdicts(rows: list[dict[str, Any]], ways: list[str]) -> list[str]:
    """How many times faster each way is than "none", where "auto" asks a network and on all."""
    lines = []
    for group, members in {
        "where auto asks the network": [row for row in rows if row["asks"]],
        "where it does not": [row for row in rows if not row["asks"]] if "auto" in ways else [],
        "all": rows,
    }.items():
        for way in ways[1:] if members else ():
            parts = []
            for label in TARGETS:
                known = [speed(row, way, label) for row in members]
                times, only = mean(known), (known.count(math.inf), known.count(0.0))
                iterations = mean([fewer(row, way, label) for row in members])
                both = [s for s in known if 0 < s < math.inf]
                slower = sum(s < 1 for s in both)
                parts.append(
                    f"{times:.2f} times to {label}, {iterations:.2f} times fewer iterations "
                    f"({len(both)} runs, slower on {slower}; on {only[0]} it alone arrives, on "
                    f"{only[1]} the other alone)"
                )
            lines.append(f"{group}, {way}: " + ", ".join(parts))
    return lines


def mean(ratios: list[float]) -> float:
    """The geometric mean where both arrive."""
    both = [ratio for ratio in ratios if 0 < ratio < math.inf]
    return math.exp(np.log(both).mean()) if both else math.nan


def main() -> None:
    """Race, print a row a matrix and the verdicts, and keep what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="NAME[:RANK]")
    parser.add_argument("--ways", nargs="+", default=["none", "auto"])
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--loss", choices=LOSSES, default="frobenius")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--shares", action="store_true", help="rows of W sum to one")
    parser.add_argument("--sparse", type=float, default=0.0, help="weight of L1, V of mean 1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
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
    what = {key: getattr(options, key) for key in ("clock", "loss", "solver", "shares", "sparse")}
    asked, rows = Asked(**what), []
    say(f"{'':28s}" + "".join(f"{way:>22s}" for way in ways) + f"   to {' and '.join(TARGETS)}")
    for case, seed in [(case, seed) for case in cases for seed in options.seeds]:
        V = case.load()
        V = V if scipy.sparse.issparse(V) else np.ascontiguousarray(asked.shaped(V))
        limits = (options.rounds, options.iterations)
        found = curves(V, case.rank, ways, asked, seed, *limits)
        ends = {way: min(e for *_, e in curve) for way, curve in found.items()}
        best = min(ends.values())
        best = max(best, EXACT) if asked == Asked(clock=asked.clock) else best
        row = {"case": case.name, "rank": case.rank, "seed": seed, "shape": V.shape}
        for name, counted in (("seconds", seconds_to), ("iterations", iterations_to)):
            row[name] = {
                way: {label: counted(curve, best * q) for label, q in TARGETS.items()}
                for way, curve in found.items()
            }
        rows.append(row | {"asks": asks(found), "curves": found})
        told = "".join(
            f"{'  '.join(f'{s:.3f}' for s in row['seconds'][way].values()):>20s} s" for way in ways
        )
        counts = "; ".join(
            ", ".join(f"{k:g}" for k in row["iterations"][way].values()) for way in ways
        )
        above = ", ".join(f"{100 * (end / best - 1):.2f}" for end in ends.values())
        label = f"{case.name}:{case.rank}" + (f" seed {seed}" if len(options.seeds) > 1 else "")
        say(
            f"{label:28s}{told}   iterations {counts}; ends {above} % above"
            + ("  (asks)" if rows[-1]["asks"] else "")
        )
    lines = verdicts(rows, ways)
    say("\n".join(lines))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        kept = {"environment": environment(), "asked": asdict(asked), "rows": rows}
        text = json.dumps(kept | {"verdicts": lines}, indent=1, default=str)
        (options.out / "slow_runs.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
