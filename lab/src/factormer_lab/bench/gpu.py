"""The worth of recording an iteration, and of a network, on a GPU.

    make bench NAME=gpu ARGS="[--calls] [--out FOLDER]"

From one start, "her-admm" on V without and with a network: milliseconds an iteration, step by step
and replayed, and iterations to 1 % and 0.1 % of the best error that any of them found; with
--calls, whole calls of `factorize` too, on the GPU and on the CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import factormer
from factormer.data.intake import as_matrix
from factormer.functions import starting_point
from factormer.problem.problem import Problem
from factormer.run import networks
from factormer.run.registry import solver_kind
from factormer.starts import Random
from factormer_lab.bench.cases import exponential
from factormer_lab.bench.environment import environment
from factormer_lab.bench.errors import EXACT

SHAPES = ((200, 150, 10), (1000, 500, 20), (5000, 2000, 20), (5000, 2000, 64), (20_000, 5_000, 40))
STACK = (64, 100, 80, 10)
ENGINES: dict[str, str | None] = {
    "classical": None,
    "any-rank": "any-rank",
    "any-rank-admm": "any-rank-admm",
}
TARGETS = (1.01, 1.001)
SAID: list[str] = []


def say(text: str) -> None:
    """Print at once, and keep it for the page."""
    SAID.append(text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def problems() -> list[tuple[str, torch.Tensor, int]]:
    """Noisy products of exponential factors, in both precisions, and a stack of them."""
    found = []
    for m, n, r in SHAPES:
        V = torch.from_numpy(exponential(m, n, r, seed=7, noise=0.05))
        found += [(f"{m}×{n}, r = {r}, {_name(t)}", V.to(t), r) for t in (torch.float32, V.dtype)]
    k, m, n, r = STACK
    stack = [exponential(m, n, r, seed=seed, noise=0.05) for seed in range(k)]
    return [*found, (f"{k} of {m}×{n}, r = {r}", torch.from_numpy(np.stack(stack)).float(), r)]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def iterations(V: torch.Tensor, rank: int, n_iter: int) -> dict[str, Any]:
    """For each engine, milliseconds an iteration and what it takes to the targets."""
    W, H = starting_point(V, rank, init="nndsvd" if V.dim() > 2 else "rotated")
    options: dict[str, Any] = {"solver": "her-admm", "init": "custom", "W": W, "H": H, "tol": 0.0}
    results, row = {}, {}
    for name, accelerator in ENGINES.items():
        options["accelerator"] = accelerator
        stepped = seconds_of_a_step(V, rank, accelerator)
        results[name] = factormer.factorize(V, rank, max_iter=n_iter, **options)
        replayed = np.diff(results[name].trace.seconds)[20:].min()
        row[name] = {"stepped": 1e3 * stepped, "replayed": 1e3 * float(replayed)}
    errors = {name: _overall(result.trace.rmse) for name, result in results.items()}
    best = max(min(error.min() for error in errors.values()), EXACT)
    for name, error in errors.items():
        reached = [np.flatnonzero(error <= best * q) for q in TARGETS]
        row[name]["iterations"] = [int(at[0]) if len(at) else None for at in reached]
    return row


@torch.no_grad()
def seconds_of_a_step(V: torch.Tensor, rank: int, accelerator: str | None) -> float:
    """The fastest of some iterations of "her-admm" that are not replayed."""
    problem, _ = Problem(as_matrix(V), rank).normalized()
    solver = solver_kind("her-admm", problem).make(problem)
    if accelerator is not None:
        solver = networks.accelerated(solver, networks.accelerator(accelerator, V.device))
    state, seconds = solver.init(problem, Random()(problem, torch.Generator().manual_seed(0))), []
    for _ in range(20):
        torch.cuda.synchronize()
        tick = time.perf_counter()
        state = solver.step(problem, state)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - tick)
    return min(seconds[5:])


def _overall(errors: Any) -> np.ndarray:
    """The error of all members of a stack together, by iteration."""
    errors = np.asarray(errors)
    return errors if errors.ndim == 1 else np.exp(np.log(errors).mean(axis=1))


def whole_calls(V: torch.Tensor, rank: int) -> dict[str, float]:
    """Seconds of `factorize` at its defaults, the best of three, and the error it ends at."""
    row: dict[str, float] = {}
    for place, matrix in (("cuda", V), ("cpu", V.cpu())):
        for name, accelerator in (("None", None), ("auto", "auto")):
            runs = [_timed(matrix, rank, accelerator) for _ in range(3 if place == "cuda" else 1)]
            row[f"{place}, {name}"], row[f"{place}, {name}, error"] = min(runs)
    return row


def _timed(V: torch.Tensor, rank: int, accelerator: str | None) -> tuple[float, float]:
    torch.cuda.synchronize()
    tick = time.perf_counter()
    result = factormer.factorize(V, rank, accelerator=accelerator)
    torch.cuda.synchronize()
    return time.perf_counter() - tick, float(np.mean(result.rmse))


def main() -> int:
    """Measure, print, and keep what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n-iter", type=int, default=200, help="iterations at most")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--calls", action="store_true", help="whole calls too, CPU included")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here; this benchmark needs one that torch can use")
    rows = []
    say("per iteration: ms step by step, ms replayed; iterations to 1 % / 0.1 %")
    for name, V, rank in problems():
        row: dict[str, Any] = {"case": name, **iterations(V.cuda(), rank, options.n_iter)}
        cells = (
            f"{engine} {row[engine]['stepped']:.2f} {row[engine]['replayed']:.3f}; "
            f"{'/'.join(str(k) for k in row[engine]['iterations'])}"
            for engine in ENGINES
        )
        say(f"{name}: " + ", ".join(cells))
        if options.calls:
            row["calls"] = whole_calls(V.cuda(), rank)
            say("   " + ", ".join(f"{k} {v:.4g}" for k, v in row["calls"].items()))
        rows.append(row)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        machine = {"gpu": torch.cuda.get_device_name(), **environment()}
        text = json.dumps({"environment": machine, "rows": rows}, indent=1)
        (options.out / "gpu.json").write_text(text + "\n", encoding="utf-8")
        page = "\n".join(["```text", *SAID, "```", ""])
        (options.out / "gpu.md").write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
