"""The paper's layers, our refining ones and those for any rank, trained equally.

    python -m factormer_lab.train.layers --device cuda --batch 256 --updates 2000  # a GPU
    python -m factormer_lab.train.layers --batch 8 --updates 1000                  # an hour

All see the same batches in the same order for as many updates, with the same loss (alg. 1: the
output, then two AO-ADMM iterations, log RMSE, γ = 0.7), noise, clipping, averaging, warm-up and one
cosine. What cannot be equal: the paper's and the refining layers serve rank 10 alone and correct
NNDSVD; those for any rank rotate the SVD itself from a random rotation, have some hundred times
fewer weights, and so a rate of their own (they are trained with the others' as well). The table has
the median RMSE on the two validation sets at the output and some iterations later, with and without
training; all numbers go to --out after each row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from factormer.accelerate.turned import Turned
from factormer.data import Matrix
from factormer.data.factors import Factors
from factormer.nn.anyfactormer import AnyFactormer
from factormer.nn.refining import build
from factormer.problem.problem import Problem
from factormer_lab.train.anyfactormer.config import AnyFactormerTraining
from factormer_lab.train.config import TrainConfig
from factormer_lab.train.factormer import epoch_order, learning_rate, validate
from factormer_lab.train.optimise import Learner
from factormer_lab.train.synthetic import Stack, training_set

CONFIGS = Path(__file__).parents[3] / "configs"
LITERAL, ANY_RANK = CONFIGS / "init-r10-literal.toml", CONFIGS / "any-rank-init.toml"
AFTER = (0, 1, 5, 20)  # AO-ADMM iterations after the output
LOOKS = 4  # validations of a run


class Turning(nn.Module):
    """The any-rank layers in the place of an N-Factormer: what is asked of x is its rank alone."""

    def __init__(self, config: TrainConfig):
        super().__init__()
        self.config = config.model
        self.layers = AnyFactormer(AnyFactormerTraining.load(ANY_RANK).model)
        self.draws = 0

    def forward(self, x: Factors, V: Matrix, *, block: int | None = None) -> Factors:
        self.draws = self.draws + 1 if torch.is_grad_enabled() else self.draws
        seed = self.draws if torch.is_grad_enabled() else 0
        rng = torch.Generator().manual_seed(seed)
        start = Turned(self.layers, n_layers=self.layers.config.n_layers, n_tries=1)
        return start(Problem(V, x.W.shape[-1]), rng)


def new(kind: str, config: TrainConfig) -> Any:
    """An untrained network of that kind, its weights drawn by the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return Turning(config) if kind == "any rank" else build(config.model)


def asked(kind: str, rate: float, options: argparse.Namespace, seed: int) -> TrainConfig:
    """The run for every kind of layers: one cosine over the updates."""
    base = TrainConfig.load(LITERAL)
    variant = "refining" if kind == "refining" else "paper"
    model = replace(base.model, variant=variant)
    sizes = {"epochs": 1, "copies": options.copies, "batch": options.batch}
    warmup = min(base.warmup, options.updates // 10)
    return replace(base, name=kind, model=model, lr=rate, seed=seed, warmup=warmup, **sizes)


def batches(data: list[Stack], config: TrainConfig, updates: int) -> Iterator[Stack]:
    """The batches of a run: as many epochs as it takes."""
    epoch = 0
    while True:
        for k, index in epoch_order(data, config, epoch):
            if not updates:
                return
            updates -= 1
            device = data[k].problem.V.device
            yield data[k].select(index.to(device), crop=device.type != "cuda")
        epoch += 1


def trained(
    kind: str, config: TrainConfig, data: list[Stack], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """The figures of a run before the first update, between, and at the end."""
    learner = Learner(new(kind, config).to(options.device), config)
    weights = sum(p.numel() for p in learner.model.parameters())
    every, seconds = -(-options.updates // LOOKS), 0.0
    yield row(config, weights, 0, seconds, validate(learner.average, config))
    for step, batch in enumerate(batches(data, config, options.updates), 1):
        begun = time.perf_counter()
        lr = learning_rate(config, step - 1, options.updates)
        learner.step(batch, n_accel=config.n_accel, lr=lr).item()
        seconds += time.perf_counter() - begun
        if step % every == 0 or step == options.updates:
            yield row(config, weights, step, seconds, validate(learner.average, config))


def row(
    config: TrainConfig, weights: int, step: int, seconds: float, found: dict[str, list[float]]
) -> dict[str, Any]:
    """The record of a look at a run."""
    about = {"layers": config.name, "weights": weights, "rate": config.lr, "seed": config.seed}
    return about | {"updates": step, "seconds": round(seconds, 1), **found}


def told(line: dict[str, Any]) -> str:
    """A row of the table."""
    parts = (f"{line['small'][k]:.4g}/{line['large'][k]:.4g}" for k in AFTER)
    return (
        f"{line['layers']:9s} {line['weights']:8d} {line['rate']:6.3f} {line['seed']:4d} "
        f"{line['updates']:7d} {line['seconds']:7.0f}  " + "  ".join(f"{p:>15s}" for p in parts)
    )


def main() -> None:
    """Train, print a table, write the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--copies", type=int, default=1, help="times the 15 000 training matrices")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("layers.json"))
    options = parser.parse_args()
    literal, any_rank = TrainConfig.load(LITERAL), AnyFactormerTraining.load(ANY_RANK)
    runs = (
        ("any rank", any_rank.lr),
        ("any rank", literal.lr),
        ("paper", literal.lr),
        ("refining", literal.lr),
    )
    heads = "  ".join(f"{f'+ {k}' if k else 'output':>15s}" for k in AFTER)
    sys.stdout.write(f"layers     weights   rate seed updates seconds  {heads}   small/large\n")
    rows = []
    for seed in options.seeds:
        first = asked("paper", literal.lr, options, seed)
        drawn = training_set(first.model.rank, first.noise, first.copies, seed=seed)
        data = [stack.to(options.device, torch.float32) for stack in drawn]
        for kind, rate in runs:
            config = asked(kind, rate, options, seed)
            for line in trained(kind, config, data, options):
                rows.append(line)
                sys.stdout.write(told(line) + "\n")
                sys.stdout.flush()
                kept = {"config": asdict(config), "batch": options.batch, "rows": rows}
                options.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
