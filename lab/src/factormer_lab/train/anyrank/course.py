"""Training of the any-rank network: rounds of updates on lanes of batches that are followed."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from factormer.nn.anyrank import AnyRankNetwork
from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.evaluate import SHAPES, compare, figures
from factormer_lab.train.anyrank.learner import Learner, Work
from factormer_lab.train.anyrank.own import parts_of
from factormer_lab.train.anyrank.pool import make_pool
from factormer_lab.train.anyrank.rollout import classical, learned
from factormer_lab.train.anyrank.tasks import TASKS
from factormer_lab.train.loop import Setting, train
from factormer_lab.train.weights import untrained, warm_cosine


class AnyRankCourse:
    """A network that is followed in rounds, after which no batch is followed further.

    A checkpoint is made between two of them. `evaluation` goes to `compare`, beside what the config
    says.
    """

    def __init__(
        self,
        config: AnyRankTraining,
        setting: Setting,
        *,
        evaluation: dict[str, Any] | None = None,
    ):
        self.config = config
        seen, unseen = parts_of(config.data) if config.data else (None, None)
        shapes = tuple(shape for shape in SHAPES if shape[2] <= config.max_rank)
        self.evaluation = {"device": setting.device, "source": unseen, "shapes": shapes}
        self.evaluation |= evaluation or {}
        pool = make_pool(config, setting.device, setting.report, seen)
        smallest = min(len(entry.bucket.V) for entry in pool)
        if config.batch > smallest:
            raise ValueError(f"batch is {config.batch}; it must be at most {smallest}, a bucket")
        self.n_batches = [len(entry.bucket.V) // config.batch for entry in pool]
        network = untrained(partial(AnyRankNetwork, config.model), config.seed)
        if setting.warm_start is not None:
            network.load_state_dict(setting.warm_start.state_dict())
        self.learner = Learner(network.to(setting.device), config, pool)
        self.total = self.epoch = math.ceil(config.n_steps / config.horizon) * config.horizon

    def update(self, step: int) -> list[dict[str, Tensor]]:
        """The updates of a round."""
        rounds = plan(self.config, step // self.config.horizon, self.n_batches)
        return [
            self.learner.step(works, self.rate(k))._asdict()
            for k, works in enumerate(rounds, start=step)
        ]

    def rate(self, step: int) -> float:
        config = self.config
        return warm_cosine(config.lr, step, self.total, warmup=config.warmup, least=0.02)

    def figures(self) -> dict[str, Any]:
        """Return what the network saves over each of the bases."""
        by_base = {base: self._saved(base) for base in self.config.bases}
        return by_base if len(by_base) > 1 else by_base[self.config.base]

    def _saved(self, base: str) -> dict[str, Any]:
        task = TASKS[base]
        solver = task.solver(self.config, 0, None)
        source = self.evaluation["source"] or task.source
        options = self.evaluation | {"source": source, "draw": task.draw}
        return figures(compare(learned(self.learner.average, solver), classical(solver), **options))


train_any_rank = partial(train, AnyRankCourse)


def plan(config: AnyRankTraining, number: int, n_batches: list[int]) -> list[list[Work]]:
    """The works of a round: for each of its updates, one per lane.

    Each lane follows a batch for a random number of updates, then takes another, so that early and
    late iterations are always learned from together. A lane has its own buckets.
    """
    rng = torch.Generator().manual_seed(1_000_003 * (config.seed + 1) + number)

    def below(bound: int) -> int:
        return int(torch.randint(bound, (), generator=rng))

    lanes = []
    for lane in range(config.lanes):
        works: list[Work] = []
        own = range(lane, len(n_batches), config.lanes)
        while len(works) < config.horizon:
            left = config.horizon - len(works)
            length = left if below(2) else 1 + below(left)
            bucket = own[below(len(own))]
            batch = below(n_batches[bucket])
            works += [Work(bucket, batch, age) for age in range(length)]
        lanes.append(works)
    return [list(works) for works in zip(*lanes, strict=True)]
