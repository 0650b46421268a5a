"""train(): epochs, schedule, validation, checkpoints; resumes exactly after a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

from factormer.nn.refining import Network, build
from factormer.train.checkpoint import MetricsLog, alone, load_checkpoint, save_checkpoint
from factormer.train.config import TrainConfig
from factormer.train.interrupt import HeldInterrupt
from factormer.train.optimise import Learner
from factormer.train.rollout import rollout
from factormer.train.synthetic import VALIDATION, Stack, training_set, validation_set

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """The result of `train`: the kept network, whether it finished, and its figures."""

    model: Network
    finished: bool
    step: int
    total: int
    seconds: float
    validation: dict[str, Any]


@alone
def train(
    config: TrainConfig,
    folder: Path,
    *,
    device: str = "cpu",
    max_seconds: float = math.inf,
    warm_start: Network | None = None,
    report: Report = lambda event: None,
    checkpoint_seconds: float = 60,
) -> Run:
    """Train in `folder`, continuing from its checkpoint if there is one.

    Stops at the end, or with a checkpoint after `max_seconds` or on Ctrl-C. The order of the
    batches depends on the seed and the epoch alone, so a resumed run gives the same weights as one
    that was never stopped.
    """
    started = time.monotonic()
    torch_device = torch.device(device)
    learner = Learner(_new_model(config, warm_start).to(torch_device), config)
    path, done, seconds_before = folder / "checkpoint.pt", 0, 0.0
    if path.exists():
        saved = load_checkpoint(path, torch_device)
        check_same_run(path, saved["config"], asdict(config))
        learner.restore(saved["learner"])
        done, seconds_before = saved["step"], saved["seconds"]
    log = MetricsLog(folder / "metrics.jsonl", resume_at=done)

    report({"event": "data", "text": "drawing the training matrices"})
    drawn = training_set(config.model.rank, config.noise, config.copies, seed=config.seed)
    data = [stack.to(torch_device, torch.float32) for stack in drawn]
    n_batches = len(epoch_order(data, config, 0))
    if not n_batches:
        largest = max(len(stack) for stack in data)
        raise ValueError(
            f"batch is {config.batch}; it must be at most {largest}, the largest class"
        )
    total = config.epochs * n_batches
    validation: dict[str, Any] = {}
    validated_at = -1

    def elapsed() -> float:
        return seconds_before + time.monotonic() - started

    def save(step: int) -> None:
        contents = {"config": asdict(config), "learner": learner.state()}
        save_checkpoint(path, contents | {"step": step, "seconds": elapsed()})

    step, saved_at, losses = done, time.monotonic(), []
    with HeldInterrupt() as interrupt:
        for before, batch in islice(_batches(data, config, done), total - done):
            epoch, step = before // n_batches, before + 1
            lr = learning_rate(config, before, n_batches)
            losses.append(learner.step(batch, n_accel=config.n_accel_at(epoch), lr=lr).clone())
            if step % 100 == 0 or step == total:
                loss = torch.stack(losses).mean().item()
                losses.clear()
                line = {"step": step, "epoch": epoch, "loss": loss, "lr": lr, "seconds": elapsed()}
                log.write(**line)
                report({"event": "step", "total": total, **line})
            if step % n_batches == 0:
                validation, validated_at = validate(learner.average, config), step
                line = {"step": step, "epoch": epoch, "seconds": elapsed(), **validation}
                log.write(**line)
                report({"event": "epoch", "total": total, **line})
            if time.monotonic() - saved_at > checkpoint_seconds:
                save(step)
                saved_at = time.monotonic()
            if interrupt.requested or time.monotonic() - started > max_seconds:
                break
        save(step)
    if validated_at != step:  # of a run that is cut short, there is no time to measure
        validation = validate(learner.average, config) if step >= total else {}
    return Run(learner.average, step >= total, step, total, elapsed(), validation)


def _new_model(config: TrainConfig, warm_start: Network | None) -> Network:
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator
        torch.manual_seed(config.seed)
        model = build(config.model)
    if warm_start is not None:
        _warm_start(model, warm_start)
    return model


@torch.no_grad()
def _warm_start(model: Network, source: Network) -> None:
    """Begin from another network; where it takes fewer points, they are the newest ones."""
    if source.config != replace(model.config, n_points=source.config.n_points):
        raise ValueError(
            f"the network to begin from has config {source.config}, which does not fit "
            f"{model.config}; they may differ in n_points alone"
        )
    weights = source.state_dict()
    embed = torch.zeros_like(model.embed.weight)
    embed[:, -weights["embed.weight"].shape[1] :] = weights["embed.weight"]
    model.load_state_dict(weights | {"embed.weight": embed})


def check_same_run(path: Path, saved: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise, naming the difference, if a checkpoint is of a run with other options."""
    if saved != options:
        changed = sorted(k for k, v in options.items() if saved.get(k) != v)
        raise ValueError(
            f"{path} was written by another config (it differs in {', '.join(changed)}); "
            "choose another output folder, or go back to that config"
        )


def epoch_order(
    data: list[Stack], config: TrainConfig, epoch: int
) -> list[tuple[int, torch.Tensor]]:
    """The batches of an epoch in random order, each from one size class; whole batches only."""
    rng = torch.Generator().manual_seed(1_000_003 * (config.seed + 1) + epoch)
    batches = [
        (k, index)
        for k, stack in enumerate(data)
        for index in torch.randperm(len(stack), generator=rng).split(config.batch)
        if len(index) == config.batch
    ]
    return [batches[i] for i in torch.randperm(len(batches), generator=rng).tolist()]


def _batches(data: list[Stack], config: TrainConfig, start: int) -> Iterator[tuple[int, Stack]]:
    """Yield (step, batch) from a given step on, without end; one fixed shape per class on a GPU."""
    crop = data[0].problem.V.device.type != "cuda"
    epoch, order = -1, []
    for step in count(start):
        if not order or step // len(order) != epoch:
            n_batches = len(order) or len(epoch_order(data, config, 0))
            epoch = step // n_batches
            order = epoch_order(data, config, epoch)
        k, index = order[step % len(order)]
        yield step, data[k].select(index.to(data[k].problem.V.device), crop=crop)


def learning_rate(config: TrainConfig, step: int, n_batches: int) -> float:
    """Cosine annealing with warm restarts, one cycle per epoch, from a base that decays (app. A).

    With schedule "cosine", one cycle over the whole run.
    """
    epoch, b = divmod(step, n_batches)
    within = b / n_batches
    progress = within if config.schedule == "restarts" else (epoch + within) / config.epochs
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    return warm * config.lr * config.lr_decay**epoch * (1 + math.cos(math.pi * progress)) / 2


@torch.no_grad()
def validate(model: Network, config: TrainConfig) -> dict[str, list[float]]:
    """Median RMSE on the two validation sets at x¹, …, x²¹ (x¹ as in `rollout`)."""
    figures = {}
    device = next(model.parameters()).device
    for name in VALIDATION:
        stack = validation_set(name, config.model.rank).to(device, torch.float32)
        points = rollout(model, stack.problem, stack.x0, n_accel=config.n_accel)
        medians = [stack.problem.rmse(x).median().item() for x in islice(points, 21)]
        figures[name] = [float(f"{x:.4g}") for x in medians]
    return figures
