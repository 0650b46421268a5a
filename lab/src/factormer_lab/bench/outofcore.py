"""Data beyond memory: seconds of a pass against reading and bare products, and peak memory.

    make bench NAME=large ARGS="[--gigabytes 4] [--columns 10000] [--rank 20] [--rounds 3]"
        [--limits 500MB 1GB] [--folder DIR]

A file of float32 entries, W Hᵀ with noise, is written to DIR and deleted at the end.

Passes: each round measures, one after another, reading the file, the products with it in memory,
and a pass. "Cold" means that the system is asked to drop the file from its cache before
(POSIX_FADV_DONTNEED); that does not reach caches of the machine below a virtual one. A pass is
compared with the larger of the other two, by medians of all rounds (`ratio`) and round by round,
the median of which (`paired`) tells more if others use the machine. There are three kinds: the
first pass of a sketch, which checks the entries too, the second, and that of an iteration.

Memory: `factorize` in a process of its own with a limit. Its anonymous memory (RssAnon: what is not
file cache), that of its children included, is read every 10 ms, less what it had after the import
and a small fit in blocks, which compiles what is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from factormer import factorize
from factormer.accelerate.passes import Sweeps
from factormer.data import Blocks
from factormer.data.dense import product
from factormer.data.factors import Factors
from factormer.data.outofcore import blocks_of
from factormer.data.sources import source_of
from factormer.kernels.threads import threads

PIECE = 2**22  # bytes of a plain reading of the file at a time
HELD = 256e6  # bytes that are multiplied again and again as if they were the whole file


def write(path: Path, m: int, n: int, rank: int) -> None:
    """W Hᵀ with uniform noise of half its size, in blocks.

    Blocks share their noise, in which rows and columns are shifted at random: drawing all of it
    would take longer than the disk.
    """
    rng = np.random.default_rng(0)
    H = rng.exponential(size=(rank, n)).astype(np.float32)
    step = min(m, max(1, int(6.4e7 / (4 * n))))
    noise = rank * rng.random((2 * step, n), dtype=np.float32)
    with path.open("wb", buffering=0) as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (m, n)}
        )
        for a in range(0, m, step):
            W = rng.exponential(size=(min(step, m - a), rank)).astype(np.float32)
            V, (row, column) = W @ H, rng.integers((step, n))
            V[:, :column] += noise[row : row + len(V), n - column :]
            V[:, column:] += noise[row : row + len(V), : n - column]
            file.write(V.data)
        os.fsync(file.fileno())


def forget(path: Path) -> None:
    """Ask the system to drop the file from its cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path) -> None:
    """Read the file from beginning to end."""
    room = memoryview(bytearray(PIECE))
    with path.open("rb", buffering=0) as file:
        while file.readinto(room):
            pass


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call."""
    tick = time.perf_counter()
    call()
    return time.perf_counter() - tick


@torch.no_grad()
def products(V: torch.Tensor, k: int, n_bytes: float) -> float:
    """Seconds of VX and VᵀY with k columns, of as many bytes as asked for; the best of three."""
    X, Y = torch.rand(V.shape[1], k), torch.rand(len(V), k)
    best = min(timed(lambda: (product(V, X), product(V.mT, Y))) for _ in range(3))
    return best * n_bytes / V.nbytes


@torch.no_grad()
def passes(path: Path, rank: int, rounds: int, limit: str, *, cold: bool) -> list[dict[str, Any]]:
    """Seconds of each kind of pass, and of what it cannot do without."""
    (m, n), size = np.load(path, mmap_mode="r").shape, path.stat().st_size
    p = 4 * rank + 10
    some = torch.rand(int(HELD / (4 * n)), n)
    H = torch.rand(n, rank)
    x = Factors(torch.rand(m, rank), H)
    X = torch.rand(n, p)
    kinds: dict[str, tuple[int, Callable[[Blocks], Any], bool]] = {
        "first of a sketch": (p, lambda V: V.both(X), False),
        "second of a sketch": (p, lambda V: V.both(X), True),
        "iteration": (rank, lambda V: V.updated(x, Sweeps(H.mT @ H, 10)), True),
    }
    rows, sums = [], None
    for name, (k, call, known) in kinds.items():
        times: dict[str, list[float]] = {"read": [], "products": [], "pass": []}
        for _ in range(rounds):
            if cold:
                forget(path)
            times["read"].append(timed(lambda: read(path)))
            times["products"].append(products(some, k, size))
            if cold:
                forget(path)
            source = source_of(np.load(path, mmap_mode="r"))  # now: what is mapped is not dropped
            assert source is not None
            V = blocks_of(source, limit)
            if known:
                V.record.sums = sums
            times["pass"].append(timed(lambda V=V, call=call: call(V)))
            sums = V.record.sums
            del source, V
        mid = {name: statistics.median(values) for name, values in times.items()}
        ratio = mid["pass"] / max(mid["read"], mid["products"])
        each = zip(times["pass"], times["read"], times["products"], strict=True)
        paired = statistics.median(t / max(least) for t, *least in each)
        found = {"kind": name, "columns": k, "cold": cold, **mid, "ratio": ratio, "paired": paired}
        rows.append(found)
        print(rows[-1], {name: [round(v, 2) for v in vs] for name, vs in times.items()}, flush=True)
    return rows


def anonymous(pid: int) -> int:
    """Bytes of anonymous memory of a process and its children; 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = next((line.split()[1] for line in text.splitlines() if "RssAnon" in line), "0")
    return 1024 * int(own) + sum(anonymous(int(child)) for child in children)


def fitted(path: Path, rank: int, limit: str) -> None:
    """In a process of its own: fit something small, say so, and fit the file."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.npy"
        write(small, 4000, 2000, rank)
        factorize(np.load(small, mmap_mode="r"), rank, memory_limit="30MB")
    print("ready", flush=True)
    sys.stdin.readline()
    tick = time.perf_counter()
    result = factorize(np.load(path, mmap_mode="r"), rank, memory_limit=limit)
    seconds = time.perf_counter() - tick
    about = {"seconds": seconds, "passes": int(result.trace.passes[-1]), "rmse": float(result.rmse)}
    print(json.dumps(about | {"status": result.status.name}), flush=True)


def peak(path: Path, rank: int, limit: str) -> dict[str, Any]:
    """Run `fitted`, and watch its memory."""
    command = [sys.executable, __file__, "--fit", str(path), "--rank", str(rank), "--limits", limit]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        before = most = anonymous(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        while child.poll() is None:
            most = max(most, anonymous(child.pid))
            time.sleep(0.01)
        about = json.loads(child.stdout.read())
    row = {"limit": limit, "before_MB": before / 1e6, "peak_MB": most / 1e6}
    return row | {"added_MB": (most - before) / 1e6, **about}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limits", nargs="*", default=["500MB", "1GB"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="do not delete the file; take it again")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit is not None:
        fitted(options.fit, options.rank, options.limits[0])
        return
    n = options.columns
    m = int(options.gigabytes * 1e9 / (4 * n))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(options.folder if options.keep else folder) / f"V-{m}x{n}.npy"
        if not path.exists():
            print(f"writing took {timed(lambda: write(path, m, n, options.rank)):.1f} s")
        with threads():
            for cold in (True, False) if options.rounds else ():
                passes(path, options.rank, options.rounds, "1GB", cold=cold)
        for limit in options.limits:
            print(peak(path, options.rank, limit), flush=True)


if __name__ == "__main__":
    main()
