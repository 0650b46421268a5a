"""Seconds of the first call where nothing is compiled, and of imports.

Every figure is of fresh processes, the best of several. "Nothing compiled" is an empty folder for
numba's cache; "new process" is the next process with what that one left there.
`make bench NAME=cold` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from factormer_lab.bench.environment import environment

SHAPES = ((25, 25), (700, 600))
STATEMENTS = (
    "import torch",
    "import sklearn.base",
    "import factormer",
    "from factormer import factorize",
    "from factormer import NMF",
)
IMPORT = """
import sys, time
tick = time.perf_counter()
exec(sys.argv[1])
print(time.perf_counter() - tick)
"""
CALLS = """
import sys, time
import numpy as np
import factormer
factormer.factorize  # which loads torch
V = np.random.default_rng(0).random((int(sys.argv[1]), int(sys.argv[2])))
for _ in range(6):
    tick = time.perf_counter()
    factormer.factorize(V, 10)
    print(time.perf_counter() - tick)
"""


def run(code: str, *arguments: object, cache: str | None = None) -> list[float]:
    """The numbers that a fresh process prints."""
    variables = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def first_calls(m: int, n: int) -> dict[str, float]:
    """Seconds of the first call with an empty cache and with a filled one, and of a later call."""
    with tempfile.TemporaryDirectory() as cache:
        empty = run(CALLS, m, n, cache=cache)
        filled = run(CALLS, m, n, cache=cache)
    return {"empty": empty[0], "filled": filled[0], "warm": min(empty[1:] + filled[1:])}


def main() -> int:
    """Measure, print the tables, write the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the best counts")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    parser.add_argument("--quick", action="store_true", help="one run of each")
    options = parser.parse_args()
    repeats = 1 if options.quick else options.repeats

    imports = {line: min(run(IMPORT, line)[0] for _ in range(repeats)) for line in STATEMENTS}
    print("| statement in a fresh process | seconds |\n|---|--:|")
    for line, seconds in imports.items():
        print(f"| `{line}` | {seconds:.2f} |", flush=True)

    print("\n| first call, rank 10 | nothing compiled | new process | later call |")
    print("|---|--:|--:|--:|")
    calls = {}
    for m, n in SHAPES:
        runs = [first_calls(m, n) for _ in range(repeats)]
        best = {name: min(one[name] for one in runs) for name in runs[0]}
        calls[f"{m}x{n}"] = best
        extra = [f"+{best[name] - best['warm']:.2f} s" for name in ("empty", "filled")]
        print(f"| {m}×{n} | {extra[0]} | {extra[1]} | {1e3 * best['warm']:.1f} ms |", flush=True)

    numbers = {"repeats": repeats, "import_seconds": imports, "call_seconds": calls}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "cold.json"
    numbers |= {"environment": environment()}
    path.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(f"\nnumbers: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
