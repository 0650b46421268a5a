"""Clients of NMF as they are, with single calls of ours inside, and with `factormer.patch`.

    python benchmarks/clients/run.py [cnmf] [sigprofiler] [--small] [--runs 4] [--ways many,…]

Each cell of the table, a client on a matrix with a loss, a way to factorize and a seed, runs in a
process of its own and is kept in build/clients; what is there is not run again, unless --again says
so. "own" is the client unchanged; it also runs from other seeds, whose spread is the scale for
differences. With --runs there are fewer runs at each rank, from which ratios of seconds can be
read sooner. `make clients-env` builds the environment to run it in, and FACTORMER_DATA names the
folder with the real matrices. On a machine with other work, read processor seconds.
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
KEPT = HERE.parents[1] / "build" / "clients"
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
        """Where it is kept."""
        case = self.case
        size = f"{case.ranks[0]}-{case.ranks[-1]}x{case.runs}"
        name = f"{case.client}-{case.data}-{case.loss}-{size}-{self.way}-{self.seed}.json"
        return KEPT / name.replace(" ", "-")


def cells(cases: list[Case], ways: tuple[str, ...]) -> list[Cell]:
    """The first seed in every way, then the other seeds of the client unchanged."""
    first = [Cell(case, way, 1) for case in cases for way in ways]
    most = max(case.seeds for case in cases)
    return first + [
        Cell(case, "own", seed)
        for seed in range(2, most + 1)
        for case in cases
        if seed <= case.seeds and "own" in ways
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
    """What the process of a cell does."""
    import on_cnmf
    import on_sigprofiler

    sys.path.insert(0, str(HERE.parent))
    from environment import environment

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
    """What a cell found; None where it has not run."""
    return json.loads(cell.path.read_text()) if cell.path.exists() else None


def table(case: Case) -> Iterator[str]:
    """The seconds of each way, and what came of them, rank by rank."""
    by_way = {way: kept(Cell(case, way, 1)) for way in WAYS}
    seeds = [kept(Cell(case, "own", seed)) for seed in range(1, case.seeds + 1)]
    seeds = [one for one in seeds if one is not None]
    ranks = f"K={case.ranks[0]}..{case.ranks[-1]}, {case.runs} runs each"
    yield f"\n{case.client} on {case.data}, {case.loss}, {ranks}"
    yield f"  {'NMF stage':9s} {'seconds':>9s} {'processor':>17s} {'load':>13s}   seconds by stage"
    for way, found in by_way.items():
        if found is not None:
            yield _seconds(way, found, by_way["own"])
    for name, better in (("error", "lower"), ("stability", "higher"), ("divergence", "lower")):
        if any(found is not None and name in found for found in by_way.values()):
            yield f"  {name} ({better} is better); seeds: the least and most of {len(seeds)}, own"
            yield from _by_rank(case, name, by_way, seeds)


def _seconds(way: str, found: dict[str, Any], own: dict[str, Any] | None) -> str:
    """Seconds of the stage, on the clock and of processors, each with how many times fewer."""
    columns = []
    for kind in ("seconds", "processor"):
        stage = found[kind]["factorize"]
        fewer = "" if own is None or own is found else f"{own[kind]['factorize'] / stage:.1f}×"
        columns.append(f"{stage:9.2f} {fewer:>7s}")
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found["seconds"].items())
    return f"  {way:9s} {' '.join(columns)} {found['environment']['load']:5.1f}   {stages}"


def _by_rank(
    case: Case, name: str, by_way: dict[str, Any], seeds: list[dict[str, Any]]
) -> Iterator[str]:
    for place, rank in enumerate(case.ranks):
        values = [f"{way} {found[name][place]:<12.7g}" for way, found in by_way.items() if found]
        of_seeds = [one[name][place] for one in seeds]
        spread = f"{min(of_seeds):.7g} … {max(of_seeds):.7g}" if of_seeds else "not run"
        yield f"    K={rank:<3d} {' '.join(values)} seeds {spread}"


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
