"""Compare the package with how it behaved once: python -m tests.characterise [CASE…] [--freeze].

Every case of `cases.py` is run with several seeds, and the best error of them compared with the one
in `frozen.json`. A case fails if its error is above 1.001 times the frozen one (or the bar that the
case names), if a status or a fact is not one that was frozen, or if a promise is broken. Iterations
and seconds are shown and decide nothing.

`--freeze` writes what is found into `frozen.json`, for all cases or for those that are named.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.characterise.measure import measured

FROZEN = Path(__file__).parent / "frozen.json"
ABOUT = (
    "How the package behaved at the commit named below; python -m tests.characterise compares. "
    "`not_kept` lists promises that were broken then and are not counted as failures: cases.py "
    "has the right ones."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases in two processes, print the table, and return how many of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.characterise", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help="a case, or the beginning of some")
    parser.add_argument("--freeze", action="store_true", help="write what is found")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    options = parser.parse_args(argv)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # which the processes inherit
    kept: dict[str, Any] = json.loads(FROZEN.read_text()) if FROZEN.exists() else {}
    frozen, not_kept = kept.get("cases", {}), kept.get("not_kept", {})
    names = _asked(options.names, frozen)
    started = time.perf_counter()
    found: dict[str, dict[str, Any]] = {}
    failures: dict[str, list[str]] = {}
    print(f"{'case':42} {'error':>12} {'frozen':>12}  {'status':24} iterations  seconds")
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measured, name) for name in names]):
            name, record = done.result()
            found[name] = record
            wrong = [] if options.freeze else differences(name, record, frozen, not_kept)
            failures |= {name: wrong} if wrong else {}
            print(_line(name, record, frozen.get(name)), *wrong, sep="\n    ✗ ", flush=True)
    print(f"{len(found)} cases in {time.perf_counter() - started:.0f} s")
    if options.freeze:
        _write(found, frozen, not_kept)
        return 0
    kept_now = [
        n for n in found if not_kept.get(n) and not set(not_kept[n]) & set(found[n]["broken"])
    ]
    if kept_now:
        print(
            f"Promises of `not_kept` that are kept now, to be struck: {', '.join(sorted(kept_now))}"
        )
    for name, wrong in sorted(failures.items()):
        print(f"FAILED {name}: {'; '.join(wrong)}")
    return min(len(failures), 1)


def _asked(wanted: list[str], frozen: dict[str, Any]) -> list[str]:
    """The names of the cases to run, those first that take longest."""
    from tests.characterise import data
    from tests.characterise.cases import CASES, REAL

    names = [case.name for case in (*CASES, *(REAL if data.FOLDER else []))]
    names = [n for n in names if not wanted or any(n.startswith(w) for w in wanted)]
    if not names:
        raise SystemExit(f"no case begins with {' or '.join(wanted)}")
    return sorted(names, key=lambda name: -frozen.get(name, {}).get("seconds", 0.0))


def differences(
    name: str, record: dict[str, Any], frozen: dict[str, Any], not_kept: dict[str, list[str]]
) -> list[str]:
    """Say how what was found differs from what was frozen, in ways that count."""
    from tests.characterise.cases import CASES, REAL

    (case,) = (case for case in (*CASES, *REAL) if case.name == name)
    wrong = [f"broken: {what}" for what in record["broken"] if what not in not_kept.get(name, [])]
    if name not in frozen:
        return [*wrong, "not frozen: python -m tests.characterise --freeze"]
    if not record["error"]:
        return wrong
    then = frozen[name]
    if not math.isclose(record["data"], then["data"], rel_tol=1e-6):
        return [*wrong, "the data are not those that were frozen: NumPy draws others"]
    if len(record["error"]) != len(then["error"]):
        wrong.append(f"{len(record['error'])} results instead of {len(then['error'])}")
    for now, before in zip(record["error"], then["error"], strict=False):
        if (now is None) != (before is None):
            wrong.append(f"error {now} instead of {before}")
        elif now is not None and case.within and now > max(case.within * before, case.floor):
            wrong.append(f"error {now:.6g} instead of {before:.6g}, {now / before:.5f} times")
    if extra := set(record["status"]) - set(then["status"]):
        wrong.append(f"status {', '.join(sorted(extra))} instead of {', '.join(then['status'])}")
    if new := [fact for fact in record["facts"] if fact not in then["facts"]]:
        wrong.append(f"{new} instead of {then['facts']}")
    return wrong


def _line(name: str, record: dict[str, Any], then: dict[str, Any] | None) -> str:
    def worst(errors: list[float | None]) -> str:
        known = [error for error in errors if error is not None]
        return f"{known[-1]:.6g}" if known else "–"

    facts = "" if not record["facts"] else str(record["facts"][0])
    told = ", ".join(record["status"]) or facts
    return (
        f"{name:42} {worst(record['error']):>12} {worst(then['error']) if then else '–':>12}  "
        f"{told:24} {record.get('iterations', 0):10} {record.get('seconds', 0.0):8.2f}"
    )


def _write(found: dict[str, Any], frozen: dict[str, Any], not_kept: dict[str, Any]) -> None:
    """Put what was found into the file, in the order of the table."""
    import factormer
    from tests.characterise.cases import CASES, REAL

    where = str(Path(factormer.__file__).parent)
    commit = subprocess.run(
        ["git", "-C", where, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    for name, record in found.items():
        if not record["error"]:
            raise SystemExit(f"{name} did not run: {record['broken']}")
        broken = record.pop("broken")
        not_kept = {k: v for k, v in not_kept.items() if k != name} | (
            {name: broken} if broken else {}
        )
        frozen[name] = record
    order = [case.name for case in (*CASES, *REAL)]
    cases = {name: frozen[name] for name in order if name in frozen}
    lines = ",\n".join(
        f"  {json.dumps(n, ensure_ascii=False)}: {json.dumps(c)}" for n, c in cases.items()
    )
    wrong = json.dumps(
        {name: not_kept[name] for name in order if name in not_kept}, ensure_ascii=False
    )
    about = f'"about": {json.dumps(ABOUT)},\n "commit": "{commit}",\n "not_kept": {wrong}'
    FROZEN.write_text(f'{{{about},\n "cases": {{\n{lines}\n }}}}\n')


if __name__ == "__main__":
    sys.exit(main())
