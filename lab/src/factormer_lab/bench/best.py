"""Find the best error known of each case: that of 40 long runs from starts of several kinds.

    make best                                # all cases of `compare` and of `optimum`
    make best CASES="race/digits kl"         # some of them
    python -m factormer_lab.bench.best --starts 10

The least error of a case is kept in `best.json` beside this file, with its start and seed, the
number of starts and the commit. Starts that were made before are made again only for a case that
has fewer of them; an error that another program reached stays if it is less. Errors are root mean
square errors, and divergences over the number of entries for Kullback–Leibler; the matrix has mean
1. What is kept after each case is kept when the program is interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from typing import Any

from factormer_lab.bench.cases import OPTIMUM, Case, find
from factormer_lab.bench.compare import BEST, KINDS_OF_TARGETS
from factormer_lab.bench.errors import ERRORS

LONG: dict[str, Any] = {"tol": 1e-5, "max_iter": 400}
LEAST_SQUARES = {"random": 16, "rotated": 12, "merged": 6, "nndsvdar": 3}
LEAST_SQUARES |= dict.fromkeys(("nndsvd", "nndsvda", "separable"), 1)
COUNTS = {"random": 20, "auto": 18, "nndsvda": 1, "nndsvdar": 1}
GROUPS = KINDS_OF_TARGETS | {"optimum": OPTIMUM}


def starts(group: str, count: int) -> list[tuple[str, int]]:
    """Return the kind and seed of so many starts, in which the kinds alternate."""
    counts = COUNTS if group == "kl" else LEAST_SQUARES
    kinds = [(seed, kind) for kind, many in counts.items() for seed in range(many)]
    return [(kind, 1000 + seed) for seed, kind in sorted(kinds, key=lambda one: one[0])][:count]


def search(group: str, case: Case, count: int) -> dict[str, Any]:
    """Return the least error of so many starts, with the start it came from."""
    from factormer import factorize

    V, found = case.load(), {}
    loss = "kullback-leibler" if group == "kl" else "frobenius"
    for kind, seed in starts(group, count):
        result = factorize(V, case.rank, init=kind, random_state=seed, loss=loss, **LONG)
        found[kind, seed] = ERRORS[loss](V, result.W, result.H)
    (kind, seed), least = min(found.items(), key=lambda one: one[1])
    return {"error": least, "start": kind, "seed": seed, "starts": len(found)}


def main() -> None:
    """Search for each case that is asked for, and keep what is better than what was known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "cases",
        nargs="*",
        help="beginnings of GROUP/NAME:RANK",
    )
    parser.add_argument("--starts", type=int, default=40)
    options = parser.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", "--short=10", "HEAD"], text=True).strip()
    for group, names in GROUPS.items():
        for case in find(names, absent=False):
            key = f"{group}/{case.name}:{case.rank}"
            known = json.loads(BEST.read_text()) if BEST.exists() else {}
            old = known.get(key, {"error": float("inf"), "starts": 0})
            asked = not options.cases or any(key.startswith(name) for name in options.cases)
            if not asked or old["starts"] >= options.starts:
                continue
            begun = time.perf_counter()
            new = search(group, case, options.starts) | {"commit": commit}
            if new["error"] > old["error"]:
                new = old | {"starts": new["starts"]}
            text = json.dumps(dict(sorted((known | {key: new}).items())), indent=1)
            BEST.write_text(text + "\n", encoding="utf-8")
            seconds = time.perf_counter() - begun
            print(f"{key:36s} {new['error']:.6g} {new['start']:10s} {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
