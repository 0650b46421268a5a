"""Calls at the default tolerance in two source trees, side by side: seconds and final errors.

    git worktree add ../before REVISION
    python benchmarks/default_calls.py ../before/src src

Races run a given number of iterations and see neither stop rules nor the last step; this sees both.
Each tree has a process of its own, and they are asked in turn. A case is the same matrix from SEEDS
seeds, since a start that changes with the code is another draw: seconds are the sum over seeds of
the best of ROUNDS, errors the geometric mean over seeds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

ROUNDS = 4
SEEDS = 6


def cases() -> dict[str, tuple[np.ndarray, int]]:
    """Matrices of several kinds and sizes, with ranks."""
    rng = np.random.default_rng(0)
    digits: Any = load_digits(return_X_y=True)[0]
    smooth = np.abs(np.cumsum(rng.standard_normal((400, 8)), axis=0)) @ rng.random((8, 300))
    noisy = rng.exponential(size=(1000, 12)) @ rng.exponential(size=(12, 500))
    other = np.random.default_rng(1)  # so that the other matrices stay what they were
    W, H = (other.exponential(size=(k, 60)) * (other.random((k, 60)) < 0.15) for k in (1200, 800))
    parts = np.maximum(W @ H.T + 0.1 * other.standard_normal((1200, 800)), 0)
    return {
        "digits, 10": (digits, 10),
        "digits, 30": (digits, 30),
        "noise 100×80, 5": (rng.random((100, 80)), 5),
        "smooth 400×300, 8": (smooth * rng.uniform(0.9, 1.1, smooth.shape), 8),
        "mixture 1000×500, 10": (noisy * rng.uniform(0.8, 1.2, noisy.shape), 10),
        "counts 600×96, 8": (rng.poisson(noisy[:600, :96] / 4).astype(float), 8),
        "parts 1200×800, 40": (parts, 40),
        "parts 1200×800, 60": (parts, 60),
    }


def serve() -> None:
    """Answer each case and seed with seconds and errors of one call each."""
    from factormer import NMF, factorize

    data = cases()
    for line in sys.stdin:
        name, seed = line.strip().split("@")
        V, rank = data[name]
        begun = time.perf_counter()
        result = factorize(V, rank, random_state=int(seed))
        middle = time.perf_counter()
        model = NMF(rank, random_state=int(seed)).fit(V)
        ended = time.perf_counter()
        error = model.reconstruction_err_ / V.size**0.5
        print(json.dumps([middle - begun, float(result.rmse), ended - middle, error]), flush=True)


def start(source: str) -> subprocess.Popen[str]:
    """A process that serves from the package in that folder."""
    command = [sys.executable, "-W", "ignore", __file__, "--serve"]
    environment = os.environ | {"PYTHONPATH": str(Path(source).resolve())}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def ask(process: subprocess.Popen[str], name: str, seed: int) -> list[float]:
    """One call of `factorize` and one of `NMF`: seconds and error of each."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{name}@{seed}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def main() -> None:
    """Print a row a case: milliseconds before and after, their ratio, errors before and after."""
    pair = [start(source) for source in sys.argv[1:3]]
    ratios: list[float] = []
    print("case                    call       before ms  after ms  ratio   error before    after")
    for name in cases():
        [ask(process, name, 0) for process in pair]  # which may compile
        # rounds × seeds × trees × (seconds, error, seconds, error)
        told = np.array(
            [
                [[ask(process, name, seed) for process in pair] for seed in range(SEEDS)]
                for _ in range(ROUNDS)
            ]
        )
        for call, at in (("factorize", 0), ("NMF", 2)):
            before, after = told[..., at].min(axis=0).sum(axis=0)
            errors = np.exp(np.log(told[-1, ..., at + 1]).mean(axis=0))
            ratios.append(before / after)
            times = f"{1e3 * before:9.2f} {1e3 * after:9.2f} {before / after:6.2f}"
            print(f"{name:23s} {call:9s}  {times}   {errors[0]:.8g} {errors[1]:.8g}")
    print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.3f}")
    for process in pair:
        process.kill()


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
