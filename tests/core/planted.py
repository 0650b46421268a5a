"""Errors and statuses of planted cases, to compare one processor with another.

`python -m tests.core.planted > FILE` writes them, and `python -m tests.core.planted FILE` fails if
those found here differ: in a status, or in an error by more than 1e-6 of the size of V.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from tests.core.lanes import core, one, planted

SHAPES = [(30, 20, 3), (64, 64, 5), (150, 40, 4), (7, 300, 2), (200, 180, 8)]


def found() -> dict[str, list]:
    """Status and error, relative to the size of V, of each case."""
    cases = {}
    for m, n, r in SHAPES:
        for noise in (0.0, 0.3):
            V = planted(m, n, r, noise=noise, seed=m)
            for precision in ("float64", "mixed"):
                last = one(V, r, max_iter=1000, tol=1e-9, finish="exact", precision=precision)
                error = last.error / float(np.sqrt(np.mean(V**2)))
                cases[f"{m} x {n}, rank {r}, noise {noise}, {precision}"] = [last.status, error]
    return cases


def main(arguments: list[str]) -> int:
    """Write what was found here, or compare it with a file."""
    here = found()
    if not arguments:
        sys.stdout.write(json.dumps(here, indent=1) + "\n")
        return 0
    there = json.loads(Path(arguments[0]).read_text("utf-8"))
    differ = [c for c in here if here[c][0] != there[c][0] or abs(here[c][1] - there[c][1]) > 1e-6]
    largest = max(abs(here[c][1] - there[c][1]) for c in here)
    sys.stdout.write(f"{core.isa()}: {len(here)} cases, largest difference {largest:.1e}\n")
    for case in differ:
        sys.stdout.write(f"{case}: {here[case]} here, {there[case]} there\n")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
