"""Iterations that the any-rank network saves, beside the classical engine from the same starts.

    make bench NAME=any-rank ARGS="[--base hals] [--model any-rank] [--data FOLDER]"

Ratios of iterations to 1 % and 0.1 % of the best error that either found, geometric means by kind,
rank, size and start, on synthetic problems that no training saw. With a folder of .npz files, each
with a matrix V (default: $FACTORMER_DATA), the same on those, from a rotated and random starts.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.zoo import load_any_rank
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import TraceAOADMM
from factormer.solvers.hals import HALS
from factormer.starts import Random, Rotated
from factormer_lab.train.anyrank.evaluate import SHAPES, compare, figures, ratios_of
from factormer_lab.train.anyrank.rollout import Recorded
from factormer_lab.train.anyrank.tasks import TASKS

BASES = {
    "admm": TraceAOADMM(n_inner=10, tol=0.0, share=0.1),
    "hals": HALS(),
}
RANKS = (5, 10, 20)


def say(text: str) -> None:
    """Print at once, so that a long run shows where it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def table(found: dict[str, Any]) -> Iterator[str]:
    """The figures by lines."""
    for group, values in found.items():
        if not isinstance(values, dict):
            yield f"{group}: {values}"
        elif any(isinstance(v, dict) for v in values.values()):
            yield group
            for name, v in values.items():
                yield f"  {name:<14}" + "".join(f"{x:8.3f}" for x in v.values())
        else:
            yield group + ": " + ", ".join(f"{k} {v:.3f}" for k, v in values.items())


def real(network: Restarted, classical: Restarted, options: argparse.Namespace) -> None:
    """One line a matrix and rank: the ratios from the first start, and from three random ones."""
    logs = []
    for path in sorted(Path(options.data).glob("*.npz")):
        contents = np.load(path)
        if "V" not in contents or contents["V"].ndim != 2:
            continue
        if contents["V"].size > options.max_entries:
            continue
        V = torch.from_numpy(np.ascontiguousarray(contents["V"], dtype=np.float64))
        V = V / V.square().mean().sqrt()
        for r in RANKS:
            if r > min(V.shape):
                continue
            one, rng = Problem(Dense(V), r), torch.Generator().manual_seed(options.seed + r)
            starts = [Rotated()(one, rng), *(Random()(one, rng) for _ in range(3))]
            x0 = Factors(*(torch.stack(F) for F in zip(*starts, strict=True)))
            stack = Dense(V.expand(len(starts), *V.shape))
            ratios, refused = ratios_of(
                network, classical, Problem(stack, r), x0, options.iterations
            )
            logs.append(torch.stack([ratio.log() for ratio in ratios.values()]))
            shown = "   ".join(
                f"to {k}: " + " ".join(f"{x:.2f}" for x in v.tolist()) for k, v in ratios.items()
            )
            say(f"  {path.stem:<22} r={r:<3} {shown}   refused {refused.mean():.2f}")
    if logs:
        both = torch.stack(logs)  # (cases, tolerances, starts)
        for name, part in (("first", both[..., :1]), ("random", both[..., 1:])):
            means = part.mean(dim=(0, 2)).exp().tolist()
            say(f"  all, {name} start: to 1 % {means[0]:.3f}, to 0.1 % {means[1]:.3f}")


@torch.no_grad()
def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="any-rank", help="name, or path of a weights file")
    parser.add_argument("--base", choices=BASES, default="admm", help="the solver accelerated")
    parser.add_argument("--per-kind", type=int, default=8, help="matrices of each kind and shape")
    parser.add_argument("--iterations", type=int, default=120)
    parser.add_argument("--max-rank", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=os.environ.get("FACTORMER_DATA"))
    parser.add_argument("--max-entries", type=float, default=4e6, help="of a real matrix")
    options = parser.parse_args()
    base = Recorded(BASES[options.base])
    model = load_any_rank(options.model)
    network, classical = Restarted(base, AnyRank(model)), Restarted(base, Extrapolation())
    shapes = tuple(shape for shape in SHAPES if shape[2] <= options.max_rank)
    if shapes:
        found = compare(
            network,
            classical,
            device=torch.device("cpu"),
            per_kind=options.per_kind,
            n_iter=options.iterations,
            shapes=shapes,
            dtype=torch.float64,
            seed=options.seed,
            draw=TASKS[options.base].draw,
        )
        for line in table(figures(found)):
            say(line)
    if options.data:
        say(f"real matrices over {options.base}")
        real(network, classical, options)


if __name__ == "__main__":
    main()
