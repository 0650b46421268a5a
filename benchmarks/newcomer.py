"""How long a newcomer waits: from a clone to the first report, and to that of a file of their own.

A clean clone of the last commit in a folder of its own, an environment made from nothing, and the
commands of the README. Packages come from wherever pip gets them, its cache included.
`make bench-newcomer` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from environment import environment

ROOT = Path(__file__).resolve().parents[1]
DIGITS = """
import numpy as np
from sklearn.datasets import load_digits
np.savetxt("digits.csv", load_digits().data, delimiter=",", fmt="%g")
"""


def seconds_of(command: list[str], folder: Path) -> float:
    """Run a command where nothing of the present environment leads elsewhere."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    print("$", " ".join(command).partition("\n")[0], flush=True)
    tick = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - tick


def steps(folder: Path) -> dict[str, float]:
    """Seconds of each step, in order; each ends with what it is for."""
    clone, binary = folder / "factormer", folder / "factormer" / ".venv" / "bin"
    times = {"clone": seconds_of(["git", "clone", "--quiet", str(ROOT), str(clone)], folder)}
    times["environment: make setup"] = seconds_of(["make", "setup"], clone)
    times["first report: make demo"] = seconds_of(["make", "demo"], clone)
    assert (clone / "runs" / "demo" / "report.html").is_file()
    seconds_of([str(binary / "python"), "-c", DIGITS], clone)
    fit = ["fit", "digits.csv", "--rank", "2..10", "--columns-are", "8x8"]
    times[f"report of a file, nine ranks: factormer {' '.join(fit)}"] = seconds_of(
        [str(binary / "factormer"), *fit], clone
    )
    assert (clone / "runs" / "digits" / "report.html").is_file()
    return times


def table(times: dict[str, float], told: dict) -> str:
    """The page: a line a step, and what it was measured on."""
    lines = [f"| {name} | {seconds:.1f} |" for name, seconds in times.items()]
    return "\n".join(
        [
            "# From a clone to a report\n",
            "| step | seconds |\n| --- | --: |",
            *lines,
            f"| all | {sum(times.values()):.1f} |\n",
            f"{told['cores']} cores, {told['cpu']}, load {told['load']:.1f} at the end, Python "
            f"{told['python']}. Packages came from where pip gets them, with its cache; nothing of "
            "numba's was compiled yet.\n",
        ]
    )


def main() -> int:
    """Measure, print the table, write table and numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="newcomer-"))
    try:
        times = steps(folder)
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
