"""Training of the paper's networks: epochs of batches, the schedule, validation (app. A)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from factormer.nn.refining import Network, build
from factormer_lab.train.config import TrainConfig
from factormer_lab.train.loop import Setting, train
from factormer_lab.train.optimise import Learner
from factormer_lab.train.rollout import rollout
from factormer_lab.train.synthetic import VALIDATION, Stack, training_set, validation_set
from factormer_lab.train.weights import untrained


class FactormerCourse:
    """A network on its batches; the order of them depends on the seed and the epoch alone."""

    def __init__(self, config: TrainConfig, setting: Setting):
        self.config = config
        self._made, self._elapsed = setting.made, setting.elapsed
        model = fresh(config)
        if setting.warm_start is not None:
            _warm_start(model, setting.warm_start)
        self.learner = Learner(model.to(setting.device), config)
        drawn = training_set(
            config.model.rank,
            config.noise,
            config.copies,
            seed=config.seed,
            up_to_100=config.up_to_100,
        )
        self.data = [stack.to(setting.device, torch.float32) for stack in drawn]
        self.crop = setting.device.type != "cuda"  # on a GPU, one fixed shape for each class
        self.at, self.order = 0, self._order(0)
        if not self.order:
            largest = max(len(stack) for stack in self.data)
            raise ValueError(
                f"batch is {config.batch}; it must be at most {largest}, the largest class"
            )
        self.epoch = len(self.order)

    @property
    def total(self) -> int:
        """Updates in all; of a timed run, as many as it would make at its pace so far."""
        if not self.config.seconds:
            return self.config.epochs * self.epoch
        made, share = self._made(), self._progress(self._made())
        return made if share >= 1 else max(made + 1, round(made / share))

    def update(self, step: int) -> list[dict[str, Tensor]]:
        epoch, within = divmod(step, self.epoch)
        if epoch != self.at:
            self.at, self.order = epoch, self._order(epoch)
        k, index = self.order[within]
        batch = self.data[k].select(index, crop=self.crop)
        n_accel = self.config.n_accel_at(epoch, self._progress(step))
        lr = self.rate(step)
        return [{"loss": self.learner.step(batch, n_accel=n_accel, lr=lr).clone()}]

    def _order(self, epoch: int) -> list[tuple[int, Tensor]]:
        """The batches of an epoch on the device, so that no update waits for a copy."""
        order = epoch_order(self.data, self.config, epoch)
        return [(k, index.to(self.data[k].problem.V.device)) for k, index in order]

    def rate(self, step: int) -> float:
        config = self.config
        if not config.seconds:
            return learning_rate(config, step, self.epoch)
        return timed_rate(config, step, self._progress(step))

    def _progress(self, step: int) -> float:
        """How much of the run is over before an update, from 0 to 1."""
        if self.config.seconds:
            return min(1.0, self._elapsed() / self.config.seconds)
        return step / self.total

    def figures(self) -> dict[str, Any]:
        return validate(self.learner.average, self.config)


train_factormer = partial(train, FactormerCourse)


def fresh(config: TrainConfig) -> Network:
    """The network that a run with this config begins with.

    As drawn, some components are negative before the last ReLU for every row of W and H: zero, and
    without a gradient, unless the layers below move them. `alive` begins with W Hᵀ near the mean of
    V instead, which is 1.
    """
    model = untrained(partial(build, config.model), config.seed)
    if config.alive:
        with torch.no_grad():
            model.extract.weight.mul_(0.1)
            model.extract.bias.fill_(1 / math.sqrt(config.model.rank))
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


def epoch_order(
    data: list[Stack], config: TrainConfig, epoch: int
) -> list[tuple[int, torch.Tensor]]:
    """The batches of an epoch in random order, each from one size class; whole batches only.

    The first class, the small matrices, may be visited more than once.
    """
    rng = torch.Generator().manual_seed(1_000_003 * (config.seed + 1) + epoch)
    batches = []
    for k, stack in enumerate(data):
        size = (config.large_batch if k else 0) or config.batch
        for _ in range(1 if k else config.small_visits):
            parts = torch.randperm(len(stack), generator=rng).split(size)
            batches += [(k, index) for index in parts if len(index) == size]
    return [batches[i] for i in torch.randperm(len(batches), generator=rng).tolist()]


def learning_rate(config: TrainConfig, step: int, n_batches: int) -> float:
    """Cosine annealing with warm restarts, one cycle per epoch, from a base that decays (app. A).

    With schedule "cosine", one cycle over the whole run.
    """
    epoch, b = divmod(step, n_batches)
    within = b / n_batches
    progress = within if config.schedule == "restarts" else (epoch + within) / config.epochs
    return timed_rate(config, step, progress) * config.lr_decay**epoch


def timed_rate(config: TrainConfig, step: int, progress: float) -> float:
    """Linear warm-up by updates, then half a cosine by `progress`, from 0 to 1."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    return warm * config.lr * (1 + math.cos(math.pi * progress)) / 2


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
