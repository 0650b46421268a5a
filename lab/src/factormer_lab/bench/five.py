"""A start and five iterations beside fifty iterations of AO-ADMM, on real data.

    FACTORMER_DATA=DIR make bench NAME=five

RMSE of V of mean 1 and seconds, starts included, at ranks 5, 10 and 20: AO-ADMM with the penalty
tr/r from NNDSVD at 50, the learned start with five iterations of the any-rank accelerator over
HALS, and the rotated start with five of HER. One seed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data import Dense
from factormer.nn.zoo import load_any_rank
from factormer.problem.problem import Problem
from factormer.run.networks import learned_start
from factormer.solvers.ao_admm import TraceAOADMM
from factormer.solvers.hals import HALS
from factormer.solvers.loop import loop
from factormer.starts import NNDSVD, Rotated

RANKS = (5, 10, 20)
MOST = 4e6  # entries of a matrix


def clocked(problem: Problem, start: Callable[..., Any], solver: Any, n: int) -> str:
    """The error after so many iterations, and seconds with the start."""
    begun = time.perf_counter()
    x0 = start(problem, torch.Generator().manual_seed(0))
    *_, last = islice(loop(problem, solver, x0, limit=n), 1, None)
    seconds = time.perf_counter() - begun
    return f"{float(problem.rmse(last.state.factors)):.5f} {seconds:6.2f} s"


@torch.no_grad()
def main() -> None:
    """Print a line for each matrix and rank."""
    learned = learned_start("any-rank-init", torch.device("cpu"))
    ways = {
        "AO-ADMM, 50": (NNDSVD(), TraceAOADMM(), 50),
        "learned + 5": (learned, Restarted(HALS(), AnyRank(load_any_rank("any-rank"))), 5),
        "rotated + 5": (Rotated(), Restarted(HALS(), Extrapolation()), 5),
    }
    if "FACTORMER_DATA" not in os.environ:
        raise SystemExit("FACTORMER_DATA names no folder with matrices")
    for path in sorted(Path(os.environ["FACTORMER_DATA"]).glob("*.npz")):
        contents = np.load(path, allow_pickle=False)
        if "V" not in contents or contents["V"].ndim != 2 or contents["V"].size > MOST:
            continue
        V = torch.from_numpy(np.ascontiguousarray(contents["V"], dtype=np.float64))
        for r in (r for r in RANKS if r <= min(V.shape)):
            problem = Problem(Dense(V / V.mean()), r)
            found = (f"{name} {clocked(problem, *way)}" for name, way in ways.items())
            sys.stdout.write(f"{path.stem} r={r}: " + " | ".join(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
