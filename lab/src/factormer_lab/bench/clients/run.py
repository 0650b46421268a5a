"""Clients of NMF as they are, with single calls of ours inside, and with `factormer.patch`.

    make clients ARGS="[cnmf] [sigprofiler] [--small] [--runs 4] [--ways many,…]"

Each cell of the table, a client on a matrix with a loss, a way to factorize and a seed, runs in a
process of its own and is kept in build/clients; what is there is not run again, unless --again says
so. "own" is the client unchanged, "single" has one call of ours for each run, and "many" is
patched. Own and many also run from other seeds; the spread is the scale for differences. With
--runs there are fewer runs at each rank, to see a ratio of seconds sooner. `make clients-env`
builds the environment to run it in, and FACTORMER_DATA names the folder with the real matrices.
On a machine with other work, read processor seconds. The very first run compiles: repeat it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
KEPT = Path.cwd() / "build" / "clients"
WAYS = ("own", "single", "many")
_HANGS = 3 * 3600  # seconds


class Case(NamedTuple):
    """A client on a matrix: the ranks, the runs at each, and the seeds of the client unchanged."""

    client: str
    data: str
    loss: str
    ranks: tuple[int, ...]
    runs: int
    seeds: int


CASES = (
    Case("cnmf", "pbmc", "squared error", (5, 6, 7, 8, 9, 10), 20, 5),
    Case("cnmf", "generated", "squared error", (5, 6, 7, 8, 9, 10), 20, 5),
    Case("cnmf", "pbmc", "KL", (5, 6, 7, 8, 9, 10), 20, 3),
    Case("cnmf", "generated", "KL", (5, 6, 7, 8, 9, 10), 20, 2),
    Case("sigprofiler", "brca", "KL", (2, 3, 4, 5), 10, 3),
)
SMALL = (
    Case("cnmf", "generated-small", "squared error", (4, 5, 6), 5, 2),
    Case("cnmf", "generated-small", "KL", (4, 5, 6), 5, 2),
    Case("sigprofiler", "generated-mutations", "KL", (2, 3), 3, 1),
)


class Cell(NamedTuple):
    """One run of a client."""

    case: Case
    way: str
    seed: int

    @property
    def path(self) -> Path:
        """Return the file that keeps it."""
        case = self.case
        size = f"{case.ranks[0]}-{case.ranks[-1]}x{case.runs}"
        name = f"{case.client}-{case.data}-{case.loss}-{size}-{self.way}-{self.seed}.json"
        return KEPT / name.replace(" ", "-")


def cells(cases: list[Case], ways: tuple[str, ...]) -> list[Cell]:
    """The first seed in every way, then the other seeds of the client, unchanged and patched."""
    first = [Cell(case, way, 1) for case in cases for way in ways]
    most = max(case.seeds for case in cases)
    return first + [
        Cell(case, way, seed)
        for seed in range(2, most + 1)
        for case in cases
        for way in ways
        if seed <= case.seeds and way != "single"
    ]


def run(cell: Cell) -> None:
    """Run a cell in a process of its own, and keep what it found."""
    KEPT.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "run.py"), "--cell", json.dumps(cell)]
    log = cell.path.with_suffix(".log")
    with log.open("w") as out:
        subprocess.run(command, check=False, stdout=out, stderr=out, timeout=_HANGS)
    if not cell.path.exists():
        print(f"{cell.path.stem} failed; its last words:\n{log.read_text()[-1000:]}")


def run_here(cell: Cell) -> None:
    """Run a cell, in a process of its own."""
    from factormer_lab.bench.clients import on_cnmf, on_sigprofiler
    from factormer_lab.bench.environment import environment

    warnings.simplefilter("ignore")
    measured = {"cnmf": on_cnmf.measured, "sigprofiler": on_sigprofiler.measured}
    case = cell.case
    found = measured[case.client](
        data=case.data,
        loss=case.loss,
        way=cell.way,
        seed=cell.seed,
        ranks=list(case.ranks),
        runs=case.runs,
    )
    found["environment"] = environment(("cnmf", "SigProfilerExtractor", "pandas", "scanpy"))
    unfinished = cell.path.with_suffix(".part")
    unfinished.write_text(json.dumps(found, indent=1))
    unfinished.replace(cell.path)


def kept(cell: Cell) -> dict[str, Any] | None:
    """Return what a cell found; None where it has not run."""
    return json.loads(cell.path.read_text()) if cell.path.exists() else None


def table(case: Case) -> Iterator[str]:
    """The seconds of each way, and what came of them, rank by rank."""
    seeds = range(1, case.seeds + 1)
    by_way = {way: [found for k in seeds if (found := kept(Cell(case, way, k)))] for way in WAYS}
    by_way = {way: found for way, found in by_way.items() if found}
    ranks = f"K={case.ranks[0]}..{case.ranks[-1]}, {case.runs} runs each"
    yield f"\n{case.client} on {case.data}, {case.loss}, {ranks}"
    yield f"  {'NMF stage':9s} {'seconds':>9s} {'processor':>17s} {'load':>13s}   seconds by stage"
    for way, (found, *_) in by_way.items():
        yield _seconds(way, found, by_way["own"][0] if "own" in by_way else None)
    for name, better in (("error", "lower"), ("stability", "higher"), ("divergence", "lower")):
        if all(name in one for found in by_way.values() for one in found):
            yield f"  {name}, {better} is better: the mean, least and most of so many seeds"
            yield from _by_rank(case, name, by_way)


def _seconds(way: str, found: dict[str, Any], own: dict[str, Any] | None) -> str:
    """Seconds of the stage, on the clock and of processors, each with how many times fewer."""
    columns = []
    for kind in ("seconds", "processor"):
        stage = found[kind]["factorize"]
        fewer = "" if own is None or own is found else f"{own[kind]['factorize'] / stage:.1f}×"
        columns.append(f"{stage:9.2f} {fewer:>7s}")
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found["seconds"].items())
    return f"  {way:9s} {' '.join(columns)} {found['environment']['load']:5.1f}   {stages}"


def _by_rank(case: Case, name: str, by_way: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    yield (
        "    "
        + " " * 5
        + "".join(f"{way} ({len(found)})".ljust(34) for way, found in by_way.items())
    )
    for place, rank in enumerate(case.ranks):
        columns = []
        for found in by_way.values():
            values = [one[name][place] for one in found]
            mean = sum(values) / len(values)
            columns.append(f"{mean:<11.6g} {min(values):.6g} … {max(values):.6g}".ljust(34))
        yield f"    K={rank:<3d}" + "".join(columns).rstrip()


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clients", nargs="*", help="cnmf, sigprofiler; all where none is named")
    parser.add_argument("--small", action="store_true", help="small cases, in a minute or two")
    parser.add_argument("--ways", default=",".join(WAYS), help="of own, single and many")
    parser.add_argument("--runs", type=int, help="runs at each rank, in place of 10 or 20")
    parser.add_argument("--again", action="store_true", help="run what is there once more")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        case, way, seed = json.loads(asked.cell)
        run_here(Cell(Case(*case), way, seed))
        return
    cases = SMALL if asked.small else CASES
    chosen = [case for case in cases if case.client in asked.clients or not asked.clients]
    if asked.runs:
        chosen = [case._replace(runs=asked.runs) for case in chosen]
    todo = cells(chosen, tuple(asked.ways.split(",")))
    for cell in todo:
        if asked.again or not cell.path.exists():
            print(f"{cell.path.stem} …", flush=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run(cell)
    for case in chosen:
        print("\n".join(table(case)))


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    main()
