"""The cost of a pass over V: a model, beside passes that are measured, and far beyond them.

    make bench NAME=cost ARGS="[--gigabytes .5 1] [--threads 1 2] [--rounds 3] [--folder DIR]"
        [--out FILE.json]
    make bench NAME=cost ARGS="--on-paper FILE.json"

The numbers of the model (`Machine`) are measured on small blocks in memory, on one thread, and by
plain readings of the smallest file, in the cache and not. `Machine.seconds` then predicts passes
over files of other sizes, on several threads, in the system's cache and not, and visits of sparse
chunks of other sizes. It takes about three minutes, on a machine with nothing else to do: the rates
are those of the fastest calls. The same function tells the seconds of a cluster whose disks,
network and tasks are given:
10⁹×10⁵, 100 stored entries a row, on 100 machines (`--on-paper`, from the numbers of a run before).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.optimize import nnls

import factormer
from factormer.accelerate.passes import Sweeps
from factormer.data.dense import product
from factormer.data.factors import Factors
from factormer.data.outofcore import blocks_of
from factormer.data.sources import source_of
from factormer.estimator.learning import Found, Learner
from factormer.estimator.options import Asked
from factormer.kernels.threads import threads
from factormer.problem.losses import as_loss
from factormer_lab.bench.outofcore import forget, read, timed, write

RANK, SWEEPS, REPEATS = 20, 10, 5
COLUMNS = 10_000  # of the files
BLOCK = 16e6  # bytes of a block in memory on which rates are measured
# Rows and stored entries a row of sparse chunks: those that rates are found from, and others.
CHUNKS = ((20_000, 50), (20_000, 100), (40_000, 50))
OTHERS = ((60_000, 100), (40_000, 200))
WIDE = 100_000  # columns of sparse chunks


@dataclass(frozen=True)
class Work:
    """The work of a pass.

    Multiplications of dense products with V by how many columns they have, rows that HALS sweeps go
    over, chunks of sparse data with their stored entries and rows; bytes of V, and those that
    travel; tasks.
    """

    products: float = 0.0
    columns: int = RANK
    swept: float = 0.0
    stored: float = 0.0
    coded: float = 0.0
    chunks: float = 0.0
    n_bytes: float = 0.0
    is_cold: bool = False
    travels: float = 0.0
    tasks: float = 0.0


@dataclass(frozen=True)
class Machine:
    """Rates of one core, of a disk, of a network, and seconds a task."""

    products: dict[int, float]  # multiplications a second, by columns
    swept: float  # rows a second, of all sweeps
    stored: float  # stored entries a second, both products
    coded: float  # rows a second, of exact coefficients
    chunk: float  # seconds of what a chunk costs whatever its size: a sum of n·r numbers
    cold: float  # bytes a second of what is not in the cache; what is there costs nothing
    network: float = float("inf")
    task: float = 0.0
    copied: float = float("inf")  # bytes a second of a core that reads what is not in the cache

    def seconds(self, work: Work, cores: int = 1, disks: int = 1, links: int = 1) -> float:
        """Seconds of a pass: the next block is read while cores work; the rest follows.

        To read takes a core as well, for as long as it takes to read from the cache.
        """
        compute = work.products / self.products[work.columns] + work.swept / self.swept
        compute += work.stored / self.stored + work.coded / self.coded + work.chunks * self.chunk
        disk = work.n_bytes / (self.cold * disks) if work.is_cold else 0.0
        compute += work.n_bytes / self.copied if work.is_cold else 0.0
        travel = work.travels / (self.network * links)
        return max(disk, compute / cores) + travel + work.tasks * self.task


def best(call: Any) -> float:
    """Seconds of the fastest of some calls."""
    return min(timed(call) for _ in range(REPEATS))


def sparse_chunk(rows: int, stored: int) -> Any:
    """Rows with so many stored entries each."""
    rng = np.random.default_rng(0)
    columns = rng.integers(WIDE, size=rows * stored).astype(np.int32)
    values = rng.exponential(size=rows * stored).astype(np.float32)
    starts = np.arange(0, rows * stored + 1, stored)
    block = scipy.sparse.csr_array((values, columns, starts), shape=(rows, WIDE))
    block.sum_duplicates()
    return block


def visited(rows: int, stored: int) -> float:
    """Seconds of a visit of `MiniBatchNMF` to a chunk, on one thread."""
    block = sparse_chunk(rows, stored)
    learner = Learner(as_loss("frobenius"), Asked.read(factormer.MiniBatchNMF(RANK)), False, 30)
    H = np.random.default_rng(1).exponential(size=(WIDE, RANK)).astype(np.float32)
    found = Found(learner, torch.from_numpy(H))
    return best(lambda: found(block))


@torch.no_grad()
def calibrated(path: Path) -> Machine:
    """The rates of one thread of this machine, each from a measurement of its own."""
    torch.set_num_threads(1)
    rows = int(BLOCK / 4 / COLUMNS)
    V, rates = torch.rand(rows, COLUMNS), {}
    for k in (RANK, 4 * RANK + 10):
        X, Y = torch.rand(COLUMNS, k), torch.rand(rows, k)
        seconds = best(lambda X=X, Y=Y: (product(V, X), product(V.mT, Y)))
        rates[k] = 2 * rows * COLUMNS * k / seconds
    H, VH, W = torch.rand(COLUMNS, RANK), 100 * torch.rand(4096, RANK), torch.rand(4096, RANK)
    update = Sweeps(H.mT @ H, SWEEPS)
    swept = 4096 / best(lambda: update(VH, W))
    (m, few), (_, many), (rows, _) = CHUNKS
    less, more, longer = (visited(*chunk) for chunk in CHUNKS)
    parts = np.array([[m * few, m, 1.0], [m * many, m, 1.0], [rows * few, rows, 1.0]])
    seconds = np.array([less, more, longer])
    found, _ = nnls(parts / seconds[:, None], np.ones(3))  # differences of noise may be negative
    entry, row, chunk = np.maximum(found, [1e-15, 1e-15, 0.0]).tolist()
    cold = []
    for _ in range(3):
        forget(path)
        cold.append(path.stat().st_size / timed(lambda: read(path)))
    copied = path.stat().st_size / best(lambda: read(path))
    found = rates, swept, 1 / entry, 1 / row, chunk, statistics.median(cold)
    return Machine(*found, copied=copied)


@torch.no_grad()
def passed(path: Path, n_threads: int, rounds: int, machine: Machine) -> list[dict[str, Any]]:
    """Seconds of passes over a file, and what the model says."""
    (m, n), rows = np.load(path, mmap_mode="r").shape, []
    H, wide = torch.rand(n, RANK), 4 * RANK + 10
    x, X = Factors(torch.rand(m, RANK), H), torch.rand(n, wide)
    torch.set_num_threads(n_threads)
    for is_cold in (False, True):
        for name, k in (("sketch", wide), ("iteration", RANK)):
            seconds, sums = [], None
            for _ in range(rounds + 2):
                if is_cold:
                    forget(path)
                source = source_of(np.load(path, mmap_mode="r"))
                assert source is not None
                with threads():
                    V = blocks_of(source, "1GB")
                    V.record.sums = sums
                    if sums is None:  # the first pass checks the entries: not of this model
                        V.total()
                        sums = V.record.sums
                    elif name == "sketch":
                        seconds.append(timed(lambda V=V: V.both(X)))
                    else:
                        update = Sweeps(H.mT @ H, SWEEPS)
                        seconds.append(timed(lambda V=V, u=update: V.updated(x, u)))
                del source, V
            size = float(path.stat().st_size)
            swept = float(m) if name == "iteration" else 0.0
            work = Work(2.0 * m * n * k, k, swept, n_bytes=size, is_cold=is_cold)
            model = machine.seconds(work, n_threads)
            found = {"kind": name, "gigabytes": size / 1e9, "threads": n_threads, "cold": is_cold}
            del seconds[0]  # in which threads begin, and code is loaded
            found |= {"seconds": statistics.median(seconds), "model": model}
            rows.append(found | {"all": seconds})
            print(rows[-1], flush=True)
    return rows


def sparse_rows(machine: Machine) -> list[dict[str, Any]]:
    """Visits to sparse chunks of other sizes, and what the model says."""
    torch.set_num_threads(1)
    rows = []
    for m, stored in OTHERS:
        model = machine.seconds(Work(stored=float(m * stored), coded=float(m), chunks=1.0))
        found = {"kind": f"sparse chunk, {m} rows with {stored} entries", "threads": 1}
        rows.append(found | {"seconds": visited(m, stored), "model": model})
        print(rows[-1], flush=True)
    return rows


def on_paper(machine: Machine) -> str:
    """10⁹×10⁵ with 100 stored entries a row, r = 20, on 100 machines of 16 cores, 10 Gbit/s.

    4 000 chunks, from disks of 1 GB/s, by `MiniBatchNMF`: H goes to each machine, and sums of n·r
    numbers come from each chunk. And what of a pass of `NMF` travels through the caller, where V
    and W stay in the memory of the workers: H to each core, and VᵀW back.
    """
    m, n, a_row, machines, chunks = 10**9, 10**5, 100, 100, 4000
    far = replace(machine, cold=1e9, network=1.25e9, task=1e-3)
    n_bytes, cores = 8.0 * m * a_row, 16 * machines
    parts = {
        "cores": Work(stored=float(m * a_row), coded=float(m), chunks=float(chunks)),
        "disks": Work(n_bytes=n_bytes, is_cold=True),
        "H to the machines": Work(travels=4.0 * n * RANK * machines),
        "sums, machine by machine": Work(travels=8.0 * n * RANK * chunks / machines),
        "tasks": Work(tasks=3.0 * chunks),
    }
    lines = ["| part of a visit by `MiniBatchNMF` | seconds |", "|---|---|"]
    each = {name: far.seconds(work, cores, disks=machines) for name, work in parts.items()}
    lines += [f"| {name} | {seconds:.2g} |" for name, seconds in each.items()]
    visit = sum(each.values())  # on Dask a task first reads and then computes
    lines.append(f"| a visit | {visit:.0f} |")
    lines.append(f"| 20 visits | {20 * visit:.0f} |")
    caller = far.seconds(Work(travels=4.0 * 2 * n * RANK * cores))
    lines.append(f"| `NMF`: what of one pass travels through the caller | {caller:.0f} |")
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    """Measured and predicted seconds as Markdown."""
    lines = ["| pass | threads | in the cache | seconds | model | model / seconds |"]
    lines.append("|---|---|---|---|---|---|")
    for r in rows:
        name, where = r["kind"], "–"
        if "cold" in r:
            name, where = f"{name}, {r['gigabytes']:.2g} GB", "no" if r["cold"] else "yes"
        share = r["model"] / r["seconds"]
        lines.append(
            f"| {name} | {r['threads']} | {where} | {r['seconds']:.2g} | {r['model']:.2g} | "
            f"{share:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[0.5, 1.0])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--on-paper", type=Path, help="the numbers of a run before")
    options = parser.parse_args()
    if options.on_paper is not None:
        kept = json.loads(options.on_paper.read_text())["machine"]
        kept["products"] = {int(k): rate for k, rate in kept["products"].items()}
        print(on_paper(Machine(**kept)))
        return
    rows: list[dict[str, Any]] = []
    machine = None
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for size in sorted(options.gigabytes):
            path = Path(folder) / f"{size}.npy"
            write(path, int(size * 1e9 / 4 / COLUMNS), COLUMNS, RANK)
            machine = machine or calibrated(path)
            for n_threads in options.threads:
                rows += passed(path, n_threads, options.rounds, machine)
            path.unlink()
    assert machine is not None
    rows += sparse_rows(machine)
    print(machine, table(rows), on_paper(machine), sep="\n\n")
    if options.out is not None:
        kept = {k: v for k, v in asdict(machine).items() if k not in ("network", "task")}
        options.out.write_text(json.dumps({"machine": kept, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
