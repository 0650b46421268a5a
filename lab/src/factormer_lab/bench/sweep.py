"""A sweep of ranks with replicates of one catalogue of counts: seconds of `factorize_many`.

    FACTORMER_DATA=… make bench NAME=gpu-sweep ARGS="[--device cuda] [--replicates 100]"

V is 96×2778, `brca_sbs96` resampled to that width by a fixed seed; ranks 2–20, so many replicates
each, `tol=1e-4`, at most 200 iterations (the default) and at most 1000. On a GPU from a tensor
there to factors there, the best of three after one to compile. With --compare, errors beside those
of a few single calls on a CPU.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import numpy as np
import torch

import factormer
from factormer_lab.bench.cases import find
from factormer_lab.bench.environment import environment

RANKS = range(2, 21)
LOSSES = ("frobenius", "kullback-leibler")


def swept(V: torch.Tensor, loss: str, replicates: int, max_iter: int) -> factormer.Results:
    """Every rank with every replicate."""
    return factormer.factorize_many(V, RANKS, n_init=replicates, loss=loss, max_iter=max_iter)


def clocked(
    V: torch.Tensor, loss: str, replicates: int, max_iter: int
) -> tuple[list[float], factormer.Results]:
    """Seconds of calls, the first with what it compiles, and what the last returned."""
    seconds, found = [], None
    for _ in range(4 if V.is_cuda else 1):
        begun = time.perf_counter()
        found = swept(V, loss, replicates, max_iter)
        if V.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    assert found is not None
    return seconds, found


def beside_single(V: torch.Tensor, loss: str, found: factormer.Results) -> float:
    """The median ratio, over ranks, of the best error to that of the best of ten single calls."""
    ratios, columns = [], found.columns()
    for rank in (2, 8, 14, 20):
        mine = columns["rmse"][columns["rank"] == rank][:10].min()
        alone = factormer.factorize_many(
            V.cpu().double(), rank, n_init=10, loss=loss, max_iter=1000
        )
        ratios.append(mine / alone.rmse.min())
    return float(np.median(ratios))


def main() -> None:
    """Print a row for each loss."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--max-iter", type=int, nargs="*", default=(200, 1000))
    parser.add_argument("--loss", choices=LOSSES, nargs="*", default=LOSSES)
    parser.add_argument("--compare", action="store_true", help="with single calls on a CPU")
    given = parser.parse_args()
    (case,) = find(["brca_resampled"])
    V = torch.from_numpy(case.make())
    V = V.float().to(given.device) if given.device != "cpu" else V
    print(environment(), given.device, tuple(V.shape), f"{len(RANKS)}×{given.replicates}")
    print("loss                most first s    best s  iterations  converged  beside single calls")
    for loss, most in product(given.loss, given.max_iter):
        seconds, found = clocked(V, loss, given.replicates, most)
        columns = found.columns()
        done = (columns["status"] == "CONVERGED").mean()
        ratio = f"{beside_single(V, loss, found):.5f}" if given.compare else ""
        print(
            f"{loss:18s} {most:5d} {seconds[0]:7.2f} {min(seconds[1:] or seconds):9.3f} "
            f"{columns['n_iter'].mean():11.1f} {done:10.3f}  {ratio}",
            flush=True,
        )


if __name__ == "__main__":
    main()
