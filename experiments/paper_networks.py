"""The paper's two networks by its own recipe (app. A), on a GPU, beside one another.

    python experiments/paper_networks.py check                      # a minute: speed, agreement
    python experiments/paper_networks.py train --minutes 9          # continues where it was

`check` takes the same updates in three ways: kernel by kernel, as a recorded graph, and in one
launch for many (`kernels/learning.cu`, which needs CuPy). `train` writes a checkpoint, a log and
the weights of each network into --out, and begins from the checkpoints under --begin if --out has
none. `--seeds 0 1` trains a network of each kind for each seed, `--mean-1` with V divided by its
mean.
"""

from __future__ import annotations

import argparse
import copy
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from factormer.nn.refining import Network
from factormer.nn.zoo import save_model
from factormer.train import synthetic
from factormer.train.chip import ChipLearner
from factormer.train.config import TrainConfig
from factormer.train.export import make_card
from factormer.train.factormer import epoch_order, fresh
from factormer.train.launches import train_together
from factormer.train.loop import Run
from factormer.train.optimise import Learner
from factormer.train.synthetic import SizeClass, Stack

CONFIGS = Path(__file__).parent / "configs"
NAMES = (
    "paper-init",
    "paper-accel",
    "paper-init-t1",
    "paper-init-alive",
    "paper-init-t1-alive",
)


def main() -> None:
    """Parse, run, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["check", "train"])
    parser.add_argument("--names", nargs="+", choices=NAMES, default=list(NAMES[:2]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--mean-1", action="store_true")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--begin", type=Path)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    configs = [
        asked(TrainConfig.load(CONFIGS / f"{name}.toml"), seed, mean_1=options.mean_1)
        for seed in options.seeds
        for name in options.names
    ]
    if options.what == "check":
        check(configs, options.device)
    else:
        train(configs, options.out, options.begin, options.minutes, options.device)


def asked(config: TrainConfig, seed: int, *, mean_1: bool) -> TrainConfig:
    """The config for another seed or scale, under another name."""
    name = config.name + ("-mean1" if mean_1 else "") + (f"-seed{seed}" if seed else "")
    return replace(
        config, name=name, seed=seed, model=replace(config.model, normalize=bool(mean_1))
    )


class Ways:
    """The same updates, kernel by kernel, as recorded graphs, and in one launch."""

    def __init__(self, config: TrainConfig, device: str):
        self.config, self.device = config, device
        self.data = few(config)
        self.on_gpu = [stack.to(device, torch.float32) for stack in self.data]
        self.order = epoch_order(self.data, config, 0)
        model = fresh(config)
        self.eager = Learner(copy.deepcopy(model).to(device), config)
        self.graph = Learner(copy.deepcopy(model).to(device), config)
        self.launch = ChipLearner(copy.deepcopy(model), config, self.data, device)
        self.stream = torch.cuda.Stream(device)
        self.blocks = torch.cuda.get_device_properties(device).multi_processor_count

    def by_eager(self, span: slice) -> list[torch.Tensor]:
        """Kernel by kernel."""
        for group in self.eager.optimizer.param_groups:
            group["lr"].fill_(self.config.lr)
        return [
            self.eager._step(self._batch(k, index, crop=True), self.config.n_accel)
            for k, index in self.order[span]
        ]

    def by_graph(self, span: slice) -> list[torch.Tensor]:
        """Recorded, one graph for each size class."""
        options = {"n_accel": self.config.n_accel, "lr": self.config.lr}
        return [
            self.graph.step(self._batch(k, index, crop=False), **options).clone()
            for k, index in self.order[span]
        ]

    def by_launch(self, span: slice) -> list[torch.Tensor]:
        """All in one launch."""
        batches = self.order[span]
        rates = [self.config.lr] * len(batches)
        updates = self.launch.prepared(batches, rates, self.config.n_accel)
        losses = self.launch.launch(updates, self.stream, self.blocks)
        self.stream.synchronize()
        return list(losses)

    def _batch(self, k: int, index: torch.Tensor, *, crop: bool) -> Stack:
        return self.on_gpu[k].select(index.to(self.device), crop=crop)


def check(configs: list[TrainConfig], device: str) -> None:
    """Take the same first update in three ways, then time more of them.

    One update: rounding errors grow from update to update, in any of the ways.
    """
    lines = []
    for config in configs:
        ways = Ways(config, device)
        kinds = {"eager": (ways.by_eager, 20), "graph": (ways.by_graph, 200)}
        kinds["launch"] = (ways.by_launch, 400)
        losses = {name: way(slice(0, 1))[0].item() for name, (way, _) in kinds.items()}
        gradients = {name: first_moment(getattr(ways, name)) for name in kinds}
        exact = gradients["eager"]
        for name, (way, count) in kinds.items():
            speed = rate_of(way, count)
            loss = abs(losses[name] / losses["eager"] - 1)
            gradient = ((gradients[name] - exact).norm() / exact.norm()).item()
            lines.append(f"{config.name:24} {name:8} {speed:10.1f} {loss:11.1e} {gradient:14.1e}")
            print(lines[-1], flush=True)
    print(f"\n{'network':24} {'way':8} {'updates/s':>10} {'loss apart':>11} {'gradient apart':>14}")
    print("\n".join(lines))


def first_moment(learner: Any) -> torch.Tensor:
    """A tenth of the gradient after one update."""
    moments = learner.state()["optimizer"]
    return torch.cat([moments[k]["exp_avg"].cpu().double().flatten() for k in sorted(moments)])


def few(config: TrainConfig, share: int = 25) -> list[Stack]:
    """A part of the training matrices, in the same proportions."""
    return [
        synthetic.stack(
            SizeClass(size.count // share, size.rows, size.cols),
            config.model.rank,
            config.noise,
            seed=100 + k,
        )
        for k, size in enumerate(synthetic.TRAINING)
    ]


def rate_of(way: Any, count: int) -> float:
    """Updates a second, after the first that were seen before."""
    way(slice(20, 40))
    torch.cuda.synchronize()
    started = time.perf_counter()
    way(slice(40, 40 + count))
    torch.cuda.synchronize()
    return count / (time.perf_counter() - started)


def train(
    configs: list[TrainConfig], out: Path, begin: Path | None, minutes: float, device: str
) -> None:
    """Train all of them until the end or the time is up; write weights; print a table."""
    started = time.monotonic()
    for config in configs:
        folder = out / config.name
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("checkpoint.pt", "metrics.jsonl"):
            source = None if begin is None else begin / config.name / file
            if source is not None and source.exists() and not (folder / file).exists():
                shutil.copyfile(source, folder / file)

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "figures":
            medians = {name: event[name][:3] for name in ("small", "large")}
            print(f"{event['name']} epoch {event['epoch']} {event['seconds']:.0f} s {medians}")

    runs = train_together(
        [(config, out / config.name) for config in configs],
        device=device,
        max_seconds=60 * minutes,
        report=report,
    )
    for config, run in zip(configs, runs, strict=True):
        card = make_card(config, run, device=device)
        save_model(run.model, card, out / config.name / f"{config.name}.safetensors")
    print(f"\n{time.monotonic() - started:.0f} s in all")
    print(f"{'network':24} {'updates':>15} {'seconds':>8} {'updates/s':>10}  median RMSE")
    for config, run in zip(configs, runs, strict=True):
        print(
            f"{config.name:24} {run.step:7}/{run.total:7} {run.seconds:8.0f} "
            f"{run.step / max(run.seconds, 1e-9):10.1f}  {medians_of(config, run)}"
        )


def medians_of(config: TrainConfig, run: Run[Network]) -> str:
    """Small / large set at a few iterations."""
    first = 0 if config.model.n_points == 1 else 1
    shown = [k for k in (0, 1, 5, 20) if k >= first]
    return ", ".join(
        f"{k}: " + " / ".join(f"{run.figures[name][k - first]:.4g}" for name in run.figures)
        for k in shown
    )


if __name__ == "__main__":
    main()
