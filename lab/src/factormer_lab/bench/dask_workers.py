"""Passes over a Dask array on one worker and on two, beside what the cost model says.

make bench NAME=workers ARGS="[--rows 12000] [--columns 4000] [--rank 20] [--fit]"
make bench NAME=workers ARGS="--fit --visits 0                 (whole fits alone)"
make bench NAME=workers ARGS="--fit --visits 0 --loss kullback-leibler --max-iter 10"
make bench NAME=workers ARGS="--chunk 100000x100000:100     (one sparse chunk, on one core)"

V lies in the memory of the workers, each a process with one thread. The model has three numbers,
measured here: multiplications a second of one worker, bytes a second between processes, and seconds
a task. `pass` is one of NMF; `visits` are some of MiniBatchNMF from a given start, the whole call;
`busiest` are the processor seconds of the worker that had most of it, which say how well the work
is shared out also where others use the machine. `fit` is NMF's whole call, after a short one.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import dask.array as da
import distributed
import numpy as np
import scipy.sparse
import torch

import factormer
from factormer.accelerate.passes import Sweeps
from factormer.data.dask import distributed_of
from factormer.data.factors import Factors
from factormer.estimator.learning import Found, Learner
from factormer.estimator.options import Asked
from factormer.problem.losses import as_loss

CHUNKS, SWEEPS, REPEATS = 16, 10, 3
PAYLOAD = 2**24  # bytes, to measure how fast they travel


class Machine(NamedTuple):
    """The cost of a pass: multiplications a second and worker, bytes a second, seconds a task."""

    rate: float
    network: float
    task: float


def predicted(machine: Machine, m: int, n: int, r: int, workers: int, itemsize: int) -> float:
    """Seconds of a pass: products and sweeps, what travels, and tasks.

    2·mnr multiplications for both products and m·r² for each sweep, divided by the workers. Rows of
    W and sums go out, those of W and VH come back, H goes to each worker, and a sum of n·r comes
    from each: its chunks, which are in its memory, are one task.
    """
    compute = (2 * m * n * r + SWEEPS * m * r * r) / (machine.rate * workers)
    numbers = 3 * m * r + 2 * workers * n * r
    travel = (itemsize * numbers + 16 * m) / machine.network
    tasks = 3 * workers + 2  # chunks, their rows and their sums; and the tree
    return compute + travel + machine.task * tasks


def made(n: int, rank: int, dtype: str, block_info: Any = None) -> np.ndarray:
    """Rows of a matrix of that rank, and noise, made where they will lie."""
    (a, b), _ = block_info[None]["array-location"]
    rng, shared = np.random.default_rng(a), np.random.default_rng(0)
    W, H = rng.exponential(size=(b - a, rank)), shared.exponential(size=(n, rank))
    return (W @ H.T + rank * rng.random((b - a, n))).astype(dtype)


def cluster(workers: int) -> Any:
    """Processes on this machine, each with one thread, also of the libraries (Dask's default)."""
    options: Any = {"memory_limit": 0, "dashboard_address": None}
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, **options
    )


def data(m: int, n: int, r: int, dtype: str) -> Any:
    """V in chunks of whole rows, in the memory of the workers."""
    rows = tuple(m * (k + 1) // CHUNKS - m * k // CHUNKS for k in range(CHUNKS))
    V = da.map_blocks(
        made, n, r, dtype, chunks=(rows, (n,)), dtype=dtype, meta=np.empty((0, 0), dtype)
    )
    V = V.persist()
    distributed.wait(V)
    return V


def measured(V: Any, r: int, visits: int, fits: bool) -> dict[str, float]:
    """Seconds of a pass, the best of some, of some visits, and of a whole fit."""
    (m, n), B = V.shape, distributed_of(V)
    rng = torch.Generator().manual_seed(0)
    W, H = (torch.rand(size, r, generator=rng).to(B.dtype) for size in (m, n))
    x = Factors(W, H)
    B.updated(x, Sweeps(H.mT @ H, SWEEPS))  # which compiles, and surveys V
    passes = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        B.updated(x, Sweeps(H.mT @ H, SWEEPS))
        passes.append(time.perf_counter() - begun)
    found = {"pass": min(passes)}
    if visits:
        found |= _visited(V, H, visits)
    if fits:
        found |= _fitted(V, r)
    return found


def _fitted(V: Any, r: int, loss: str = "frobenius", max_iter: int = 200) -> dict[str, float]:
    """Seconds of a whole fit, and processor seconds of its busiest worker and of the caller.

    By `NMF`, whose `reconstruction_err_` is ‖V − W Hᵀ‖, or √(2·divergence) of another loss.
    """
    client: Any = distributed.get_client()
    options: Any = {"beta_loss": loss, "random_state": 0}
    factormer.NMF(r, max_iter=3, **options).fit(V)  # which compiles, on every worker
    model = factormer.NMF(r, max_iter=max_iter, **options)
    before, own, begun = client.run(time.process_time), time.process_time(), time.perf_counter()
    model.fit(V)
    seconds, own = time.perf_counter() - begun, time.process_time() - own
    after = client.run(time.process_time)
    busiest = max(after[name] - before[name] for name in after)
    about = {"fit": seconds, "fit, busiest": busiest, "fit, caller": own}
    passes = int(model.result_.trace.passes[-1])
    return about | {"passes": passes, "error": float(model.reconstruction_err_)}


def _visited(V: Any, H: torch.Tensor, visits: int) -> dict[str, float]:
    """Seconds of some visits of MiniBatchNMF from H, and those of the busiest worker."""
    client: Any = distributed.get_client()
    start = H.mT.numpy()
    online = factormer.MiniBatchNMF(len(start), init="custom", max_iter=visits, tol=0)
    online.fit(V, H=start)  # which compiles
    seconds, before, after = [], {}, {}
    for _ in range(REPEATS):
        begun, before = time.perf_counter(), client.run(time.process_time)
        online.fit(V, H=start)
        seconds.append(time.perf_counter() - begun)
        after = client.run(time.process_time)
    busiest = max(after[name] - before[name] for name in after)
    error = online.reconstruction_err_
    return {"visits": min(seconds), "busiest": busiest, "error": error}


def alone(m: int, n: int, r: int, dtype: str, loss: str, max_iter: int) -> None:
    """Print what whole fits take, and nothing else."""
    found: dict[int, dict[str, float]] = {}
    for workers in (1, 2):
        with cluster(workers) as processes, distributed.Client(processes):
            found[workers] = _fitted(data(m, n, r, dtype), r, loss, max_iter)
        print(
            f"{m}×{n}, rank {r}, {dtype}, {loss}, {CHUNKS} chunks; workers {workers}:",
            found[workers],
        )
    for name in ("fit", "fit, busiest"):
        print(f"{name}: two workers {found[1][name] / found[2][name]:.2f} times as fast as one")


def _identity(chunk: Any) -> Any:
    return chunk


def calibrated(m: int, n: int, r: int, dtype: str) -> Machine:
    """The numbers of the model, each from a measurement of its own on one worker."""
    with cluster(1) as workers, distributed.Client(workers) as client:
        rate = client.submit(_rate, m // CHUNKS, n, r, dtype, pure=False).result()
        numbers = np.random.default_rng(0).random(PAYLOAD // 8)
        client.gather(client.submit(_identity, numbers, pure=False))
        begun = time.perf_counter()
        client.gather(client.submit(_identity, numbers, pure=False))
        network = 2 * PAYLOAD / (time.perf_counter() - begun)
        begun = time.perf_counter()
        client.gather(client.map(_identity, range(10 * CHUNKS), pure=False))
        task = (time.perf_counter() - begun) / (10 * CHUNKS)
    return Machine(rate, network, task)


def _rate(rows: int, n: int, r: int, dtype: str) -> float:
    """Multiplications a second of both products with a chunk, bare, the best of some."""
    kind = torch.float32 if dtype == "float32" else torch.float64
    block, H, W = (torch.rand(size, dtype=kind) for size in ((rows, n), (n, r), (rows, r)))
    best = float("inf")
    for _ in range(REPEATS + 1):
        begun = time.perf_counter()
        torch.mm(block, H)
        torch.mm(block.mT, W)
        best = min(best, time.perf_counter() - begun)
    return 2 * rows * n * r / best


def chunk_seconds(rows: int, n: int, stored: int, r: int) -> None:
    """Seconds that one core takes for a chunk with so many stored entries a row: `MiniBatchNMF`."""
    rng = np.random.default_rng(0)
    columns = rng.integers(n, size=rows * stored).astype(np.int32)
    values = rng.exponential(size=rows * stored).astype(np.float32)
    starts = np.arange(0, rows * stored + 1, stored)
    block = scipy.sparse.csr_array((values, columns, starts), shape=(rows, n))
    block.sum_duplicates()
    learner = Learner(as_loss("frobenius"), Asked.read(factormer.MiniBatchNMF(r)), False, 30)
    found = Found(learner, torch.from_numpy(rng.exponential(size=(n, r)).astype(np.float32)))
    torch.set_num_threads(1)
    seconds = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        found(block)
        seconds.append(time.perf_counter() - begun)
    print(f"{rows}×{n}, {block.nnz} stored, rank {r}: {min(seconds):.2f} s on one core")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--columns", type=int, default=4_000)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--visits", type=int, default=2, help="of MiniBatchNMF; 0: none")
    parser.add_argument("--fit", action="store_true", help="also the whole call of factorize")
    parser.add_argument("--loss", default="frobenius", help="of whole fits alone")
    parser.add_argument("--max-iter", type=int, default=200, help="of whole fits alone")
    parser.add_argument("--chunk", help="ROWSxCOLUMNS:STORED, stored entries a row")
    asked = parser.parse_args()
    if asked.chunk:
        shape, _, stored = asked.chunk.partition(":")
        rows, columns = map(int, shape.split("x"))
        chunk_seconds(rows, columns, int(stored), asked.rank)
        return
    m, n, r, dtype = asked.rows, asked.columns, asked.rank, asked.dtype
    if not asked.visits and asked.fit:
        alone(m, n, r, dtype, asked.loss, asked.max_iter)
        return
    machine = calibrated(m, n, r, dtype)
    print(
        f"{m}×{n}, rank {r}, {dtype}, {CHUNKS} chunks; one worker: {machine.rate:.3g} products/s, "
        f"{machine.network:.3g} bytes/s, {1e3 * machine.task:.2g} ms a task"
    )
    print("workers    pass   model  visits busiest     fit       error")
    found: dict[int, dict[str, float]] = {}
    for workers in (1, 2):
        with cluster(workers) as processes, distributed.Client(processes):
            found[workers] = now = measured(data(m, n, r, dtype), r, asked.visits, asked.fit)
        model = predicted(machine, m, n, r, workers, np.dtype(dtype).itemsize)
        visits, busiest, fit, error = (
            now.get(name, float("nan")) for name in ("visits", "busiest", "fit", "error")
        )
        print(
            f"{workers:7d}{now['pass']:8.2f}{model:8.2f}{visits:8.2f}{busiest:8.2f}{fit:8.2f}"
            f"{error:12.7g}"
        )
    print(found)
    for name in [name for name in found[1] if name not in ("error", "passes", "fit, caller")]:
        print(f"{name}: two workers {found[1][name] / found[2][name]:.2f} times as fast as one")


if __name__ == "__main__":
    main()
