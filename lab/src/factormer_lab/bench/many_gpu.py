"""Many small problems on a GPU: milliseconds from tensors on the device to factors on the device.

    make bench NAME=gpu-many ARGS="[one] [starts] [ragged] [counts]"

Parts, all by default: 10 000 of 100×100 at rank 10, also with a stop for each ("one"); a random
start and the learned one at many ranks, on such data and on three other kinds and shapes, by which
no layer was counted and no threshold set ("starts"); as many multiplications (Σ mnr) over shapes
from 20 to 128 and ranks from 2 to 16 ("ragged"); and counts, Poisson of such data of mean 5, under
Kullback–Leibler ("counts"). Data are products of exponential factors with 10 % multiplicative
noise, seeds fixed. The excess is over the best of ten runs in float64 of the first problems, on a
CPU: of errors, or of divergences. Times are the best of ROUNDS, compilation apart.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np
import torch

import factormer

ROUNDS, KNOWN, MOST = 7, 500, 300
KULLBACK = "kullback-leibler"


def data(count: int, m: int, n: int, r: int, seed: int) -> torch.Tensor:
    """Problems (count, m, n) of that rank."""
    rng = torch.Generator("cuda").manual_seed(seed)

    def exponential(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, device="cuda").exponential_(generator=rng)

    V = exponential(count, m, r) @ exponential(count, n, r).mT / r
    noise = 1 + 0.1 * torch.randn(V.shape, device="cuda", generator=rng)
    return (V * noise.clamp_min(0)).contiguous()


def ragged(total: int) -> tuple[list[torch.Tensor], np.ndarray]:
    """Problems of many shapes and ranks that come to this many multiplications."""
    rng, problems, ranks, made = np.random.default_rng(0), [], [], 0
    while made < total:
        m, n, r = (int(rng.integers(a, b + 1)) for a, b in ((20, 128), (20, 128), (2, 16)))
        problems.append(data(1, m, n, r, len(problems))[0])
        ranks.append(r)
        made += m * n * r
    return problems, np.array(ranks)


def clocked(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Milliseconds of the first call, of the best of the next, and what it returned."""
    torch.cuda.synchronize()
    times, found = [], None
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        found = call()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begun))
    return times[0], min(times[1:]), found


def best_known(problems: Any, ranks: np.ndarray, loss: str = "frobenius") -> np.ndarray:
    """The least of ten errors of each problem, in float64."""
    V = [np.asarray(A.cpu(), np.float64) for A in problems]
    options = {"loss": loss, "n_init": 10, "init": "random", "max_iter": 1000, "tol": 1e-6}
    return factormer.factorize_many(V, ranks, **options).rmse.reshape(len(V), 10).min(axis=1)


def report(name: str, call: Callable[[], Any], best: np.ndarray, power: int = 1) -> Any:
    """Print a row: times, and the excess of the errors, to a power, over the best known."""
    first, least, results = clocked(call)
    columns = results.columns()
    excess = 100 * ((columns["rmse"][: len(best)] / best) ** power - 1)
    print(
        f"{name:34s} {first / 1e3:8.2f} {least:9.2f} {np.median(excess):9.3f} "
        f"{np.quantile(excess, 0.95):9.3f} {columns['n_iter'].mean():8.1f}",
        flush=True,
    )
    return results


def others(kind: str, m: int, n: int, r: int) -> torch.Tensor:
    """10 000 problems of another kind."""
    rng = torch.Generator("cuda").manual_seed(1000 + r)
    if kind == "counts":
        return torch.poisson(5 * data(10_000, m, n, r, 1000 + r), generator=rng)
    if kind == "cut":  # at half the rank that the data have
        return data(10_000, m, n, 2 * r, 1000 + r)
    W, H = (
        torch.empty(10_000, size, r, device="cuda").exponential_(generator=rng)
        * (torch.rand(10_000, size, r, device="cuda", generator=rng) < 0.4)
        for size in (m, n)
    )
    noise = 0.05 * torch.randn(10_000, m, n, device="cuda", generator=rng)
    return (W @ H.mT / r + noise).clamp_min(0).contiguous()


def iterations_to(V: Any, rank: int, best: np.ndarray, init: str) -> int:
    """The fewest iterations that bring the median error within 1 % of the best; MOST at most."""
    low, high = 1, MOST
    while low < high:
        half = (low + high) // 2
        found = factormer.factorize_many(V, rank, init=init, max_iter=half, tol=0)
        near = np.median(found.columns()["rmse"] / best) <= 1.01
        low, high = (low, half) if near else (half + 1, high)
    return low


def starts(name: str, V: torch.Tensor, r: int) -> dict[str, float]:
    """Milliseconds to 1 %; prints how far both are above the better one after 400 iterations."""
    many, some, ends = factormer.factorize_many, V[:KNOWN].contiguous(), {}
    for init in ("random", "any-rank-init"):
        ends[init] = many(some, r, init=init, max_iter=400, tol=0).columns()["rmse"]
    best, times = np.minimum(*ends.values()), {}
    for init, end in ends.items():
        n = iterations_to(some, r, best, init)
        _, least, _ = clocked(lambda i=init, n=n: many(V, r, init=i, max_iter=n, tol=0))
        times[init] = least
        late = " (not there)" if n == MOST else ""
        print(
            f"{name}, rank {r}, {init}: {n} iterations{late}, {least:.2f} ms, "
            f"at the end +{100 * np.median(end / best - 1):.3f} %",
            flush=True,
        )
    return times


def all_starts() -> None:
    """Both starts on the data whose layers were counted, then on others, with sums."""
    sets = [("10 000 of 100×100", None, 100, 100, (6, 8, 10, 12, 16, 20, 24, 32))]
    sets += [
        ("sparse factors, 80×120", "sparse", 80, 120, (13, 18, 22, 30)),
        ("counts, 96×110", "counts", 96, 110, (14, 18, 26)),
        ("half the rank, 128×64", "cut", 128, 64, (14, 19, 28)),
    ]
    for name, kind, m, n, ranks in sets:
        sums = {"random": 0.0, "any-rank-init": 0.0}
        for r in ranks:
            V = data(10_000, m, n, r, r) if kind is None else others(kind, m, n, r)
            for init, least in starts(name, V, r).items():
                sums[init] += least
        print(
            f"{name}, all ranks: random {sums['random']:.1f} ms, learned "
            f"{sums['any-rank-init']:.1f} ms, {sums['random'] / sums['any-rank-init']:.2f} times"
        )


def one() -> None:
    """One shape and rank; and how errors compare with those of single calls on a CPU."""
    V, ranks = data(10_000, 100, 100, 10, 0), np.full(10_000, 10)
    many = factormer.factorize_many
    best = best_known(V[:KNOWN], ranks[:KNOWN])
    for n_iter in (16, 17, 20, 25):
        report(f"10 000 of 100×100, {n_iter} iterations",
               lambda n=n_iter: many(V, 10, max_iter=n, tol=0), best)  # fmt: skip
    stopped = report("10 000 of 100×100, tol=1e-4", lambda: many(V, 10), best)
    alone = [
        factormer.factorize(V[k].cpu().numpy().astype(float), 10, random_state=k).rmse
        for k in range(100)
    ]
    ratio = stopped.columns()["rmse"][:100] / np.array(alone)
    print(f"beside single calls on a CPU: {ratio.min():.6f} … {ratio.max():.6f} of their errors")


def many_shapes() -> None:
    """Ragged problems, as a list and as one tensor."""
    many, (problems, ranks) = factormer.factorize_many, ragged(10**9)
    best = best_known(problems[:40], ranks[:40])
    print(f"{len(problems)} ragged problems")
    for n_iter in (20, 30, 40):
        report(f"ragged, {n_iter} iterations",
               lambda n=n_iter: many(problems, ranks, max_iter=n, tol=0), best)  # fmt: skip
    report("ragged, tol=1e-4", lambda: many(problems, ranks), best)
    packed = factormer.Ragged.of(problems)
    for n_iter in (20, 30):
        report(f"Ragged, {n_iter} iterations",
               lambda n=n_iter: many(packed, ranks, max_iter=n, tol=0), best)  # fmt: skip


def counts() -> None:
    """Counts under Kullback–Leibler."""
    many, V = factormer.factorize_many, data(10_000, 100, 100, 10, 0)
    drawn = torch.poisson(5 * V, generator=torch.Generator("cuda").manual_seed(1))
    best = best_known(drawn[:100], np.full(100, 10), KULLBACK)
    for n_iter in (3, 5, 8, 12):
        report(f"counts, KL, {n_iter} iterations",
               lambda n=n_iter: many(drawn, 10, loss=KULLBACK, max_iter=n, tol=0),
               best, 2)  # fmt: skip
    report("counts, KL, tol=1e-4", lambda: many(drawn, 10, loss=KULLBACK), best, 2)


PARTS = {"one": one, "starts": all_starts, "ragged": many_shapes, "counts": counts}


def main() -> None:
    """Print the rows of each part asked for."""
    asked = sys.argv[1:] or list(PARTS)
    if unknown := set(asked) - PARTS.keys():
        sys.exit(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(torch.cuda.get_device_name(0), f"torch {torch.__version__}, CuPy {cupy.__version__}")
    print("problems                            first s   best ms  excess %   p95 %  iterations")
    for name in asked:
        PARTS[name]()


if __name__ == "__main__":
    main()
