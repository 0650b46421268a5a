"""How long a newcomer waits: from a clone to the first report, and to that of a file of their own.

A clean clone of the last commit in a folder of its own, an environment made from nothing, and the
commands of the README. This is done twice, with a cache of pip that is empty at first: once with
all packages to be downloaded, and once with packages cached. `make bench NAME=newcomer` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from factormer_lab.bench.environment import environment

ROOT = Path.cwd()
OWN = "then, a report of a file: factormer fit digits.csv --rank 2..10 --columns-are 8x8"
DIGITS = """
import numpy as np
from sklearn.datasets import load_digits
np.savetxt("digits.csv", load_digits().data, delimiter=",", fmt="%g")
"""


class Took(NamedTuple):
    """Seconds of a step: by the clock, and those in which processors worked for it."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{self.clock:.1f} ({self.processor:.1f})"


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of(command: list[str], folder: Path, cache: Path) -> Took:
    """Run a command where nothing of the present environment leads elsewhere."""
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "MAKEFLAGS", "MAKELEVEL")
    kept = {k: v for k, v in os.environ.items() if k not in dropped}
    print("$", " ".join(command).partition("\n")[0], flush=True)
    tick, before = time.perf_counter(), _processor()
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept | {"PIP_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    took = Took(time.perf_counter() - tick, _processor() - before)
    print(f"  {took} s", flush=True)
    return took


def steps(folder: Path, cache: Path) -> dict[str, Took]:
    """Seconds of each step, in order; each ends with what it is for."""
    clone, binary = folder / "factormer", folder / "factormer" / ".venv" / "bin"
    clone_command = ["git", "clone", "--quiet", str(ROOT), str(clone)]
    times = {
        "clone": seconds_of(clone_command, folder, cache),
        "environment: make install": seconds_of(["make", "install"], clone, cache),
        "first report: make demo": seconds_of(["make", "demo"], clone, cache),
    }
    assert (clone / "runs" / "demo" / "report.html").is_file()
    seconds_of([str(binary / "python"), "-c", DIGITS], clone, cache)
    fit = [
        str(binary / "factormer"),
        "fit",
        "digits.csv",
        "--rank",
        "2..10",
        "--columns-are",
        "8x8",
    ]
    times[OWN] = seconds_of(fit, clone, cache)
    assert (clone / "runs" / "digits" / "report.html").is_file()
    return times


def table(times: dict[str, dict[str, Took]], told: dict) -> str:
    """The page: a line a step, and what it was measured on."""
    rows = list(next(iter(times.values())))
    first = [name for name in rows if name != OWN]
    lines = [[str(column[name]) for column in times.values()] for name in rows]
    sums = [
        Took(*map(sum, zip(*(column[k] for k in first), strict=True))) for column in times.values()
    ]
    names = [*rows[: len(first)], "**from clone to first report**", OWN]
    lines.insert(len(first), [f"**{took}**" for took in sums])
    return "\n".join(
        [
            "# From a clone to a report\n",
            f"| step: seconds by the clock (of processors) | {' | '.join(times)} |",
            f"| --- |{' --: |' * len(times)}",
            *(f"| {name} | {' | '.join(row)} |" for name, row in zip(names, lines, strict=True)),
            f"\n{told['cores']} cores, {told['cpu']}, load {told['load']:.1f} at the end, Python "
            f"{told['python']}. Nothing of numba's, and none of Python's own bytecode, was "
            "compiled yet. Downloads depend on the network.\n",
        ]
    )


def main() -> int:
    """Measure, print the table, write table and numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    options = parser.parse_args()
    folder, times = Path(tempfile.mkdtemp(prefix="newcomer-")), {}
    try:
        for name in ("from nothing", "packages cached"):
            print(f"# {name}")
            (folder / name).mkdir()
            times[name] = steps(folder / name, folder / "cache")
            shutil.rmtree(folder / name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    told = environment()
    page = table(times, told)
    print(page)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "newcomer.md").write_text(page, encoding="utf-8")
    numbers = {"seconds": times, "environment": told}
    (options.out / "newcomer.json").write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
