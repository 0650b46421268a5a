"""Count the instructions of one iteration in four fixed cases, by callgrind.

Counting needs no idle machine, so a change can be judged without a clock.

`python -m tests.core.instructions` prints them beside those recorded; `--record` records them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

RECORDED = Path(__file__).with_name("instructions.json")
FEW, MANY = 10, 20  # iterations of two runs, whose difference is counted


def cases() -> dict:
    """Matrix, rank and rules of each case."""
    import scipy.sparse as sp

    from tests.core.lanes import planted

    V = planted(200, 150, 10)
    thin = planted(600, 500, 10)
    thin[thin < sorted(thin.ravel())[int(0.95 * thin.size)]] = 0
    parts = planted(800, 30, 10), planted(600, 30, 10)
    return {
        "dense 200x150, rank 10": (V, 10, {}),
        "float32 iterations, the same": (V, 10, {"precision": "float32"}),
        "sparse 600x500 with 15000 entries, rank 10": (sp.csr_matrix(thin), 10, {}),
        "800x600 of rank 30, rank 10": (("low-rank", *parts), 10, {}),
    }


def work(name: str, iterations: int) -> None:
    """Run a case."""
    from tests.core.lanes import one

    V, rank, rules = cases()[name]
    one(V, rank, max_iter=iterations, tol=0, finish="none", threads=1, **rules)


def collected(name: str, iterations: int) -> int:
    """Instructions of a call of the core, without those of Python."""
    call = f"from tests.core.instructions import work; work({name!r}, {iterations})"
    options = ["--callgrind-out-file=/dev/null", "--toggle-collect=factormer::avx2::run(*"]
    command = ["valgrind", "--tool=callgrind", *options, sys.executable, "-c", call]
    environment = {**os.environ, "FACTORMER_ISA": "avx2"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return int(re.findall(r"Collected : (\d+)", done.stderr)[-1])


def counted() -> dict[str, int]:
    """Instructions of one iteration, for each case."""
    found = {}
    for name in cases():
        few, many = (collected(name, iterations) for iterations in (FEW, MANY))
        found[name] = round((many - few) / (MANY - FEW))
    return found


def main() -> None:
    """Count, and print or record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    now = counted()
    if parser.parse_args().record or not RECORDED.exists():
        RECORDED.write_text(json.dumps(now, indent=1) + "\n")
    before = json.loads(RECORDED.read_text())
    for name, count in now.items():
        sys.stdout.write(f"{name:45} {count:>12,}  {count / before[name] - 1:+.1%}\n")


if __name__ == "__main__":
    main()
