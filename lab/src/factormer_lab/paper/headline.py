"""The paper's two claims about synthetic data, on matrices that no training and no choice has seen.

    python -m factormer_lab.paper.headline init-r10-paper accel-r10-paper
    python -m factormer_lab.paper.headline runs/mine/mine.safetensors --device cuda --out mine.json

An initialization is compared by the median RMSE of its start and of AO-ADMM from there with AO-ADMM
from NNDSVD; the claim is that the start is as good as 20 iterations. An acceleration is compared by
the ratio of its RMSE to that of AO-ADMM on the same matrix, every proposal taken; the claim is that
the ratio is below one. Each set has the sizes of a validation set and another seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.nn.refining import Network
from factormer.nn.zoo import load_factormer
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM
from factormer.solvers.loop import loop
from factormer_lab.train.rollout import rollout
from factormer_lab.train.synthetic import VALIDATION, Stack, stack

SEED = 90_000_001  # training draws with small seeds, and validation with its own
N_ITER = 50
STARTS = (0, 1, 5, 20)  # iterations shown of an initialization
RATIOS = (1, 2, 3, 4, 5, 10, 20, 50)  # and of an acceleration
_BATCH = 32  # matrices at once


@dataclass(frozen=True)
class Start:
    """Median RMSE after each iteration of AO-ADMM, from NNDSVD and from a network's start."""

    plain: list[float]
    network: list[float]

    @property
    def is_met(self) -> bool:
        """Whether the start is as good as 20 iterations."""
        return self.network[0] <= self.plain[20]

    def lines(self) -> list[str]:
        """Return two rows of the table and the verdict."""
        rows = (("AO-ADMM", self.plain), ("network", self.network))
        verdict = "met" if self.is_met else "not met"
        return [
            _row("iteration", STARTS),
            *(_row(name, [f"{values[k]:.4f}" for k in STARTS]) for name, values in rows),
            f"  as good at once as AO-ADMM at 20, {self.plain[20]:.4f}: {verdict}",
        ]


@dataclass(frozen=True)
class Ratio:
    """Quartiles of the ratio to AO-ADMM on the same matrix, after each iteration from the first."""

    median: list[float]
    third_quartile: list[float]

    @property
    def is_met(self) -> bool:
        """Whether the median is below 1 at 1 to 50 and the third quartile at 1 to 20."""
        return max(self.median) < 1 and max(self.third_quartile[:20]) < 1

    def lines(self) -> list[str]:
        """Return two rows of the table and the verdict."""
        rows = (("median", self.median), ("third quartile", self.third_quartile))
        verdict = "met" if self.is_met else "not met"
        return [
            _row("iteration", RATIOS),
            *(_row(name, [f"{values[k - 1]:.3f}" for k in RATIOS]) for name, values in rows),
            f"  largest median {max(self.median):.3f}, largest third quartile at 1 to 20 "
            f"{max(self.third_quartile[:20]):.3f}: below 1 {verdict}",
        ]


def fresh(name: str, rank: int, *, count: int, seed: int) -> Stack:
    """Draw a set of the sizes of a validation set, without noise, in float64."""
    size = replace(VALIDATION[name], count=count)
    drawn = stack(size, rank, 0.0, seed=seed + sorted(VALIDATION).index(name))
    return drawn.to("cpu", torch.float64)


@torch.no_grad()
def compare(model: Network, drawn: Stack, *, n_iter: int = N_ITER) -> Start | Ratio:
    """Run AO-ADMM without and with the network on every matrix."""
    plain, network = [], []
    for index in torch.arange(len(drawn), device=drawn.problem.V.device).split(_BATCH):
        problem, x0 = drawn.select(index, crop=True)
        plain.append(
            _errors(problem, (look.factors for look in loop(problem, AOADMM(), x0)), n_iter)
        )
        network.append(_errors(problem, rollout(model, problem, x0, n_accel=5), n_iter))
    without, with_it = torch.cat(plain, dim=1), torch.cat(network, dim=1)  # (n_iter + 1, count)
    if model.config.n_points == 1:
        return Start(_medians(without), _medians(with_it))
    ratios = with_it[:-1] / without[1:]
    return Ratio(_medians(ratios), ratios.quantile(0.75, dim=1).tolist())


def _errors(problem: Problem, points: Iterator[Factors], n_iter: int) -> Float[Tensor, "k b"]:
    return torch.stack([problem.rmse(x) for x in islice(points, n_iter + 1)])


def _medians(errors: Float[Tensor, "k b"]) -> list[float]:
    return errors.quantile(0.5, dim=1).tolist()


def _row(name: str, cells: Sequence[object]) -> str:
    return f"  {name:15s}" + "".join(f"{cell!s:>8s}" for cell in cells)


def main(arguments: list[str] | None = None) -> None:
    """Print a table for each network and set, and write the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="*", default=["init-r10-paper", "accel-r10-paper"])
    parser.add_argument("--count", type=int, default=128, help="matrices of a set")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="JSON file for all iterations")
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, object]] = {}
    for network in options.networks:
        model = load_factormer(network).to(options.device)
        found[network] = {}
        for name in VALIDATION:
            drawn = fresh(name, model.config.rank, count=options.count, seed=options.seed)
            result = compare(model, drawn.to(options.device, torch.float64))
            sys.stdout.write("\n".join([f"{network}, {name} set", *result.lines()]) + "\n")
            sys.stdout.flush()
            found[network][name] = {"met": result.is_met, **asdict(result)}
    if options.out is not None:
        about = {"seed": options.seed, "count": options.count}
        options.out.write_text(json.dumps({**about, "networks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
