"""The paper's two claims about synthetic data, on matrices that no training and no choice has seen.

    python -m factormer_lab.paper.headline init-r10-paper accel-r10-paper
    python -m factormer_lab.paper.headline runs/mine/mine.safetensors --device cuda --out mine.json

An initialization is compared by the median RMSE of its start and of AO-ADMM from there with AO-ADMM
from NNDSVD; the claim is that the start is as good as 20 iterations. An acceleration is compared by
the ratio of its RMSE to that of AO-ADMM on the same matrix; the claim is that the ratio is below
one. Every proposal is taken, as in the paper, unless `--safeguard` names a judge. Each set has the
sizes of a validation set and another seed. A network is one that is shipped, a file, or a release
of the past as NAME@VERSION, from `lab/released`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.base import (
    Accelerated,
    AfterIteration,
    Always,
    Descent,
    Hedged,
    Safeguard,
)
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.data.factors import Factors
from factormer.nn.factormer import ModelConfig
from factormer.nn.refining import Network
from factormer.nn.zoo import Card, find_model, find_version, load_factormer, read_card
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM
from factormer.solvers.loop import loop
from factormer.starts import Given
from factormer_lab.paper.reproduce.measure import compact, rounded
from factormer_lab.train.synthetic import VALIDATION, Stack, stack

SEED = 90_000_001  # training draws with small seeds, and validation with its own
N_ITER = 50
STARTS = (0, 1, 5, 20)  # iterations shown of an initialization
RATIOS = (1, 2, 3, 4, 5, 10, 20, 50)  # and of an acceleration
SAFEGUARDS: dict[str, Safeguard] = {
    "always": Always(),
    "descent": Descent(),
    "after": AfterIteration(AOADMM()),
}
RELEASED = Path(__file__).parents[3] / "released"
_BATCH = 32  # matrices at once
_TOLD = ("n_steps", "objective", "alive", "batch", "gamma")  # options that tell recipes apart


@dataclass(frozen=True)
class Start:
    """Median RMSE after each iteration of AO-ADMM, from NNDSVD and from a network's start."""

    plain: list[float]
    network: list[float]
    largest: list[float]  # ratio to AO-ADMM on the same matrix, of any

    @property
    def is_met(self) -> bool:
        """Whether the start is as good as 20 iterations."""
        return self.network[0] <= self.plain[20]

    def lines(self) -> list[str]:
        """Return two rows of the table and the verdict."""
        rows = (("AO-ADMM", self.plain), ("network", self.network), ("largest ratio", self.largest))
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
    largest: list[float]

    @property
    def is_met(self) -> bool:
        """Whether the median is below 1 at 1 to 50 and the third quartile at 1 to 20."""
        return max(self.median) < 1 and max(self.third_quartile[:20]) < 1

    def lines(self) -> list[str]:
        """Return two rows of the table and the verdict."""
        rows = (
            ("median", self.median),
            ("third quartile", self.third_quartile),
            ("largest", self.largest),
        )
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
def compare(
    model: Network,
    drawn: Stack,
    *,
    n_iter: int = N_ITER,
    safeguard: Safeguard = SAFEGUARDS["always"],
) -> Start | Ratio:
    """Run AO-ADMM without and with the network on every matrix."""
    plain, network = [], []
    for index in torch.arange(len(drawn), device=drawn.problem.V.device).split(_BATCH):
        problem, x0 = drawn.select(index, crop=True)
        plain.append(
            _errors(problem, (look.factors for look in loop(problem, AOADMM(), x0)), n_iter)
        )
        network.append(_errors(problem, _with(model, problem, x0, safeguard), n_iter))
    without, with_it = torch.cat(plain, dim=1), torch.cat(network, dim=1)  # (n_iter + 1, count)
    if model.config.n_points == 1:
        largest = (with_it / without).amax(dim=1).tolist()
        return Start(_medians(without), _medians(with_it), largest)
    ratios = with_it[1:] / without[1:]
    return Ratio(
        _medians(ratios), ratios.quantile(0.75, dim=1).tolist(), ratios.amax(dim=1).tolist()
    )


def _with(model: Network, problem: Problem, x0: Factors, safeguard: Safeguard) -> Iterator[Factors]:
    """AO-ADMM from the network's start, or with the network in its first five iterations."""
    if model.config.n_points == 1:
        start = LearnedInit(model, base=Given(x0), safeguard=safeguard)
        looks = loop(problem, AOADMM(), start(problem, torch.Generator()))
    else:
        solver = Accelerated(AOADMM(), LearnedAccelerator(model), safeguard=safeguard, n_accel=5)
        hedged = isinstance(safeguard, AfterIteration)  # as in the package
        looks = loop(problem, Hedged(solver) if hedged else solver, x0)
    return (look.factors for look in looks)


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
    parser.add_argument(
        "--safeguard", choices=sorted(SAFEGUARDS), default="always", help="judge of the proposals"
    )
    options = parser.parse_args(arguments)
    judge = SAFEGUARDS[options.safeguard]
    found: dict[str, dict[str, Any]] = {}
    for network in options.networks:
        path = _path(network)
        model = load_factormer(path).to(options.device)
        found[network] = _told(read_card(path))
        for name in VALIDATION:
            drawn = fresh(name, model.config.rank, count=options.count, seed=options.seed)
            result = compare(model, drawn.to(options.device, torch.float64), safeguard=judge)
            sys.stdout.write("\n".join([f"{network}, {name} set", *result.lines()]) + "\n")
            sys.stdout.flush()
            found[network][name] = {"met": result.is_met, **asdict(result)}
    if options.out is not None:
        about = {"seed": options.seed, "count": options.count, "safeguard": options.safeguard}
        text = compact(rounded({**about, "networks": found})) + "\n"
        options.out.write_text(text, encoding="utf-8")


def _path(network: str) -> Path:
    """The file of a network: shipped, a user's, or NAME@VERSION of the past."""
    name, at, version = network.partition("@")
    return find_version(name, version, RELEASED) if at else find_model(network)


def _told(card: Card) -> dict[str, Any]:
    """Return what tells one training from another: version, layers, recipe, cost."""
    assert isinstance(card.config, ModelConfig)
    options = card.training.get("options", {})
    return {
        "name": card.name,
        "version": card.version,
        "layers": card.config.variant,
        "shared": card.config.shared,
        "updates": card.training.get("steps"),
        "seconds": card.training.get("seconds"),
        "recipe": {key: options[key] for key in _TOLD if key in options},
    }


if __name__ == "__main__":
    main()
