"""Large single matrices on a GPU: what an iteration costs beside what reading V costs.

    make bench NAME=gpu-large ARGS="[--ahead] [--out FOLDER]      #"`make bench NAME=gpu-large`

Milliseconds an iteration are those of whole calls, 220 iterations less 20, over 200, the best of
three. The floor is measured, too: V read twice, by sums of its entries (sparse: of values and
columns, by rows and by columns). A matrix beyond the card is read in blocks that travel: seconds a
pass, and of a copy of as many bytes. With --ahead, seconds to 1 % and .1 % above the best error
with and without looking ahead, on a matrix of some 19 GB.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from factormer import factorize
from factormer_lab.bench.environment import environment

DENSE = (20_000, 10_000, 50)
SPARSE = (100_000, 20_000, 10_000_000, 20)
BEYOND = (30_000, 10_000, 20, "1500MB")
AHEAD = (80_000, 60_000, 50)


def main() -> int:
    """Measure, print a table, keep it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ahead", action="store_true", help="looking ahead, too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here; this benchmark needs one that torch can use")
    rows = []
    for measure in (dense, sparse, beyond, *([ahead] if options.ahead else [])):
        for row in measure():
            rows.append(row)
            said = ", ".join(f"{name} {_shown(value)}" for name, value in row.items())
            sys.stdout.write(said + "\n")
            sys.stdout.flush()
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        machine = {"gpu": torch.cuda.get_device_name(), **environment()}
        text = json.dumps({"environment": machine, "rows": rows}, indent=1)
        (options.out / "gpu_large.json").write_text(text + "\n", encoding="utf-8")
    return 0


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def noisy(m: int, n: int, r: int, noise: float = 0.1, seed: int = 0) -> torch.Tensor:
    """A product of uniform factors, each entry with so much normal noise, made on the GPU."""
    rng = torch.Generator("cuda").manual_seed(seed)
    W, H = (torch.rand(k, r, device="cuda", generator=rng) for k in (m, n))
    V = torch.empty(m, n, device="cuda")
    for a in range(0, m, 4000):
        block = W[a : a + 4000] @ H.mT
        V[a : a + 4000] = block * (
            1 + noise * torch.randn(block.shape, device="cuda", generator=rng)
        )
    return V


def dense() -> list[dict[str, Any]]:
    """The large dense matrix."""
    m, n, r = DENSE
    V = noisy(m, n, r)
    floor = 2 * milliseconds(lambda: V.sum())
    return [_row(f"dense {m}×{n}, r = {r}", floor, *iteration(V, r))]


def sparse() -> list[dict[str, Any]]:
    """The large sparse one, with entries at random places."""
    m, n, entries, r = SPARSE
    rng = np.random.default_rng(0)
    at = rng.integers(0, m, entries), rng.integers(0, n, entries)
    V = scipy.sparse.csr_array((rng.random(entries, dtype=np.float32), at), shape=(m, n))
    values = torch.from_numpy(V.data).cuda()
    columns = torch.from_numpy(V.indices.astype(np.int32)).cuda()
    floor = 2 * (milliseconds(lambda: values.sum()) + milliseconds(lambda: columns.amax()))
    name = f"sparse {m}×{n}, {V.nnz} entries, r = {r}"
    return [_row(name, floor, *iteration(V, r, device="cuda"))]


def beyond() -> list[dict[str, Any]]:
    """A matrix in memory, for a card that has less room than it takes."""
    m, n, r, limit = BEYOND
    V = noisy(m, n, r).cpu().numpy()
    options: dict[str, Any] = {"device": "cuda", "memory_limit": limit, "max_iter": 30, "tol": 0}
    factorize(V, r, **options)
    tick = time.perf_counter()
    result = factorize(V, r, **options)
    seconds = time.perf_counter() - tick
    pinned = torch.empty(2**26, pin_memory=True)
    there = torch.empty_like(pinned, device="cuda")
    copy = milliseconds(lambda: there.copy_(pinned, non_blocking=True)) * V.nbytes / pinned.nbytes
    passes = int(result.trace.passes[-1])
    begun = float(result.trace.seconds[0])
    inside = factorize(torch.from_numpy(V).cuda(), r, max_iter=30, tol=0)
    return [
        {
            "case": f"streamed {m}×{n}, {limit} of memory",
            "seconds": seconds,
            "of them before the first iteration": begun,
            "passes": passes,
            "ms a pass": 1e3 * seconds / passes,
            "ms of a copy": copy,
            "error": float(result.rmse),
            "error on the card": float(inside.rmse),
        }
    ]


def ahead() -> list[dict[str, Any]]:
    """Seconds to an error, with and without looking ahead, from one start."""
    m, n, r = AHEAD
    V, rows = noisy(m, n, r), []
    runs = {name: _curve(V, r, name, n_iter) for name, n_iter in (("her-admm", 150), ("ahead", 40))}
    best = min(float(errors.min()) for errors, _ in runs.values())
    for name, (errors, seconds) in runs.items():
        row: dict[str, Any] = {"case": f"{name} on {m}×{n}, r = {r}"}
        for share in (1.01, 1.001):
            there = np.flatnonzero(errors <= share * best)
            reached = len(there) > 0
            row[f"iterations to {share}"] = float(there[0]) if reached else float("nan")
            row[f"seconds to {share}"] = float(seconds[there[0]]) if reached else float("nan")
        rows.append(row | {"best error": float(errors.min())})
    return rows


def _curve(V: torch.Tensor, r: int, solver: str, n_iter: int) -> tuple[np.ndarray, np.ndarray]:
    options: dict[str, Any] = {"solver": solver, "accelerator": None, "init": "random", "tol": 0}
    factorize(V[:4000, :3000].contiguous(), r, max_iter=3, **options)  # which compiles
    trace = factorize(V, r, max_iter=n_iter, **options).trace
    seconds = np.asarray(trace.seconds)
    return np.asarray(trace.rmse), seconds - seconds[0]


def _row(name: str, floor: float, ms: float, error: float) -> dict[str, Any]:
    return {
        "case": name,
        "floor ms": floor,
        "ms": ms,
        "times the floor": ms / floor,
        "error": error,
    }


def iteration(V: Any, rank: int, **options: Any) -> tuple[float, float]:
    """Milliseconds of an iteration of whole calls, and the error at the end."""

    def call(n_iter: int) -> tuple[float, float]:
        torch.cuda.synchronize()
        tick = time.perf_counter()
        result = factorize(V, rank, init="random", tol=0, max_iter=n_iter, **options)
        torch.cuda.synchronize()
        return time.perf_counter() - tick, float(result.rmse)

    call(20)
    short, long = (min(call(count) for _ in range(3)) for count in (20, 220))
    return 1e3 * (long[0] - short[0]) / 200, long[1]


def milliseconds(f: Callable[[], Any], count: int = 20) -> float:
    """Of one call, by the clock of the GPU."""
    f()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    for _ in range(count):
        f()
    ended.record()
    torch.cuda.synchronize()
    return begun.elapsed_time(ended) / count


if __name__ == "__main__":
    sys.exit(main())
