"""train_rank(): curves, then updates with checkpoints, then calibration; resumes after a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from factormer.nn.rank import RankNetwork
from factormer.select.ranks.curves import FITTED
from factormer.train.checkpoint import MetricsLog, alone, load_checkpoint, save_checkpoint
from factormer.train.factormer import check_same_run
from factormer.train.interrupt import HeldInterrupt
from factormer.train.rank.calibrate import rates, temperature_of, threshold_of
from factormer.train.rank.config import RankTraining
from factormer.train.rank.data import FITTED_EVERY, HELD_OUT, HIGH, Shards, load_shards

Report = Callable[[dict[str, Any]], None]
_WIDE = 0.2  # share of the steps that learn from problems of high rank


@dataclass(frozen=True)
class RankRun:
    """The result of a call: the averaged network, calibrated, and its figures."""

    model: RankNetwork
    finished: bool
    step: int
    total: int
    seconds: float
    figures: dict[str, Any]


@alone
def train_rank(
    config: RankTraining,
    folder: Path,
    *,
    device: str = "cpu",
    max_seconds: float = math.inf,
    warm_start: RankNetwork | None = None,
    report: Report = lambda event: None,
    checkpoint_seconds: float = 60,
) -> RankRun:
    """Train in `folder`, continuing from its curves and its checkpoint if there are some.

    Stops at the end, or with a checkpoint after `max_seconds` or on Ctrl-C. What a step learns from
    depends on the seed and its number alone.
    """
    started = time.monotonic()

    def made(done: int, total: int) -> None:
        report({"event": "data", "text": f"{done} of {total}"})

    numbers = [*range(config.n_shards), *range(HIGH, HIGH + config.n_high)]
    held_out = range(HELD_OUT, HELD_OUT + config.n_held_out)
    seen, unseen = (
        load_shards(folder / "curves", some, config.wide, made) for some in (numbers, held_out)
    )
    learner = Learner(_new_network(config, warm_start, seen).to(device), config)
    path, step, seconds_before = folder / "checkpoint.pt", 0, 0.0
    if path.exists():
        saved = load_checkpoint(path, torch.device(device))
        check_same_run(path, saved["config"], asdict(config))
        learner.restore(saved["learner"])
        step, seconds_before = saved["step"], saved["seconds"]
    log = MetricsLog(folder / "metrics.jsonl", resume_at=step)

    def elapsed() -> float:
        return seconds_before + time.monotonic() - started

    def save() -> None:
        contents = {"config": asdict(config), "learner": learner.state()}
        save_checkpoint(path, contents | {"step": step, "seconds": elapsed()})

    saved_at, losses = time.monotonic(), []
    with HeldInterrupt() as interrupt:
        while step < config.n_steps:
            batch, lr = batch_of(seen, config, step), learning_rate(config, step)
            losses.append(learner.step(batch, lr, seed=_seed(config, step)))
            step += 1
            if step % 100 == 0 or step == config.n_steps:
                loss = torch.stack(losses).mean().item()
                log.write(step=step, seconds=elapsed(), loss=loss)
                report({"event": "step", "step": step, "total": config.n_steps, "loss": loss})
                losses = []
            if time.monotonic() - saved_at > checkpoint_seconds:
                save()
                saved_at = time.monotonic()
            if interrupt.requested or time.monotonic() - started > max_seconds:
                break
        save()
    model = learner.average.cpu().eval()
    found = calibrated(model, unseen) if step >= config.n_steps else {}  # no time if cut short
    return RankRun(model, step >= config.n_steps, step, config.n_steps, elapsed(), found)


class Batch(NamedTuple):
    """Curves to learn from, after cropping and hiding."""

    features: Float[Tensor, "b k f"]
    real: Bool[Tensor, "b k"]
    labels: Float[Tensor, "b k"]


class Learner:
    """The network, its average over steps, and the optimiser."""

    def __init__(self, network: RankNetwork, config: RankTraining) -> None:
        self.network, self.config = network, config
        self.average = deepcopy(network)
        self.optimiser = torch.optim.AdamW(
            network.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )

    def step(self, batch: Batch, lr: float, *, seed: int) -> Float[Tensor, ""]:
        """One update of the weights; the loss before it. The seed says what is dropped."""
        device = self.network.mean.device
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            logits = self.network(batch.features.to(device), batch.real.to(device))
        logs = F.log_softmax(logits, 1).masked_fill(~batch.real.to(device), 0.0)
        loss = -(logs * batch.labels.to(device)).sum(1).mean()
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.network.parameters(), strict=True)
            for kept, new in pairs:
                kept.lerp_(new, 1 - self.config.ema)
        return loss.detach()

    def state(self) -> dict[str, Any]:
        """All that a later run needs to continue."""
        parts = {"network": self.network, "average": self.average, "optimiser": self.optimiser}
        return {name: part.state_dict() for name, part in parts.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from there."""
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])


def batch_of(data: Shards, config: RankTraining, step: int) -> Batch:
    """The curves of a step, of one family: some begin and end elsewhere, and some lose fits."""
    rng = torch.Generator().manual_seed(_seed(config, step))
    wide = bool((torch.rand((), generator=rng) < _WIDE) & data.wide.any())
    count = config.batch // 2 if wide else config.batch  # those of high ranks are longer
    among = (data.wide == int(wide)).nonzero()[:, 0]
    some = among[torch.randint(len(among), (count,), generator=rng)]
    features, length, target = data.features[some].clone(), data.length[some], data.target[some]
    b, k, _ = features.shape
    u = torch.rand(6, b, generator=rng)
    cropped = u[0] < 0.5
    first = torch.where(cropped & (u[1] < 0.6), (u[2] * (target + 1)).long(), 0)
    last = torch.where(cropped, target + ((u[3] * (length - target)).long()), length - 1)
    last = torch.maximum(last, torch.minimum(first + 1, length - 1))
    at = torch.arange(k)
    real = (at >= first[:, None]) & (at <= last[:, None])
    hidden = torch.rand(b, k, generator=rng) < u[4][:, None] * 1.5
    hidden &= (u[5] < config.dropped)[:, None]
    beyond = torch.rand(b, generator=rng) * FITTED_EVERY >= 1
    hidden |= ((data.extra[some] == 1) & beyond)[:, None]
    features[..., FITTED] = features[..., FITTED].masked_fill(hidden[..., None], 0.0)
    return Batch(*_shifted(features, real, first), labels=_labels(real, target, first, config))


def _seed(config: RankTraining, step: int) -> int:
    return 1_000_003 * (config.seed + 1) + step


def _shifted(
    features: Float[Tensor, "b k f"], real: Bool[Tensor, "b k"], first: Int[Tensor, "b"]
) -> tuple[Float[Tensor, "b q f"], Bool[Tensor, "b q"]]:
    """Curves moved to begin at place 0, cut to the longest."""
    k = features.shape[1]
    at = torch.arange(k) + first[:, None]
    inside = at < k
    at = at.clamp(max=k - 1)
    real = real.gather(1, at) & inside
    longest = int(real.sum(1).max())
    features = features.gather(1, at[..., None].expand_as(features))
    return features[:, :longest], real[:, :longest]


def _labels(
    real: Bool[Tensor, "b k"],
    target: Int[Tensor, "b"],
    first: Int[Tensor, "b"],
    config: RankTraining,
) -> Float[Tensor, "b q"]:
    """One at the planted rank, less a little for the ranks beside it."""
    longest = int(real.sum(1).max())
    length, place = real.sum(1), target - first
    labels = F.one_hot(place, longest).float()
    beside = sum(
        F.one_hot((place + side).clamp(0, longest - 1), longest).float()
        * ((place + side >= 0) & (place + side < length))[:, None]
        for side in (-1, 1)
    )
    labels = (1 - 2 * config.smoothing) * labels + config.smoothing * beside
    return labels / labels.sum(1, keepdim=True)


def learning_rate(config: RankTraining, step: int) -> float:
    """Linear warm-up, then a cosine down to a hundredth."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    return warm * config.lr * (0.01 + 0.99 * (1 + math.cos(math.pi * step / config.n_steps)) / 2)


@torch.no_grad()
def calibrated(model: RankNetwork, data: Shards) -> dict[str, Any]:
    """Set temperature and threshold of the network by curves held out, and measure it there."""
    real = torch.arange(data.features.shape[1]) < data.length[:, None]
    logits = model(data.features, real).double()
    model.temperature.fill_(temperature_of(logits, data.target))
    probabilities = torch.softmax(logits / model.temperature, 1)
    model.threshold.fill_(threshold_of(probabilities, data.target))
    found = {}
    for name, some in (("ranks 1–12", data.wide == 0), ("ranks 5–40", data.wide == 1)):
        if bool(some.any()):
            found[name] = rates(probabilities[some], data.target[some], float(model.threshold))
    return {"temperature": float(model.temperature), "threshold": float(model.threshold), **found}


def _new_network(config: RankTraining, warm_start: RankNetwork | None, data: Shards) -> RankNetwork:
    """A network that knows no more than the size of its features, or that of an earlier run."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator
        torch.manual_seed(config.seed)
        network = RankNetwork(config.model)
    if warm_start is not None:
        network.load_state_dict(warm_start.state_dict())
        return network
    real = torch.arange(data.features.shape[1]) < data.length[:, None]
    rows = data.features[real]
    network.mean.copy_(rows.mean(0))
    network.scale.copy_(rows.std(0).clamp(min=1e-3))
    return network
