"""Training of the network that chooses the rank: curves, then updates, then calibration."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from factormer.nn.rank import RankNetwork
from factormer.select.ranks.curves import FITTED
from factormer_lab.train.loop import Setting, train
from factormer_lab.train.rank.calibrate import rates, temperature_of, threshold_of
from factormer_lab.train.rank.config import RankTraining
from factormer_lab.train.rank.data import FITTED_EVERY, HELD_OUT, HIGH, Shards, load_shards
from factormer_lab.train.weights import Averaged, untrained, warm_cosine

_WIDE = 0.2  # share of the steps that learn from problems of high rank
_CLIP = 1.0


class RankCourse:
    """A network on curves, which are made first and kept in the folder of the run."""

    def __init__(self, config: RankTraining, setting: Setting):
        def made(done: int, total: int) -> None:
            setting.report({"event": "data", "text": f"{done} of {total}"})

        self.config, self.device = config, setting.device
        self.total = self.epoch = config.n_steps
        numbers = [*range(config.n_shards), *range(HIGH, HIGH + config.n_high)]
        held_out = range(HELD_OUT, HELD_OUT + config.n_held_out)
        self.seen, self.unseen = (
            load_shards(setting.folder / "curves", some, config.wide, made)
            for some in (numbers, held_out)
        )
        self.learner = Averaged(
            _new_network(config, setting.warm_start, self.seen).to(setting.device),
            weight_decay=config.weight_decay,
            clip=_CLIP,
            ema=config.ema,
            betas=(0.9, 0.999),
        )

    def update(self, step: int) -> list[dict[str, Tensor]]:
        batch = Batch(*(part.to(self.device) for part in batch_of(self.seen, self.config, step)))
        with torch.random.fork_rng():
            torch.manual_seed(_seed(self.config, step))  # of what is dropped
            logits = self.learner.model(batch.features, batch.real)
        logs = F.log_softmax(logits, 1).masked_fill(~batch.real, 0.0)
        loss = -(logs * batch.labels).sum(1).mean()
        self.learner.learn(loss, self.rate(step))
        return [{"loss": loss.detach()}]

    def rate(self, step: int) -> float:
        config = self.config
        return warm_cosine(config.lr, step, config.n_steps, warmup=config.warmup, least=0.01)

    def figures(self) -> dict[str, Any]:
        return calibrated(self.learner.average.cpu(), self.unseen)


train_rank = partial(train, RankCourse)


class Batch(NamedTuple):
    """Curves to learn from, after cropping and hiding."""

    features: Float[Tensor, "b k f"]
    real: Bool[Tensor, "b k"]
    labels: Float[Tensor, "b k"]


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
    network = untrained(partial(RankNetwork, config.model), config.seed)
    if warm_start is not None:
        network.load_state_dict(warm_start.state_dict())
        return network
    real = torch.arange(data.features.shape[1]) < data.length[:, None]
    rows = data.features[real]
    network.mean.copy_(rows.mean(0))
    network.scale.copy_(rows.std(0).clamp(min=1e-3))
    return network
