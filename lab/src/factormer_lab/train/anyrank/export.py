"""From a run of the any-rank network to the card of its weights file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from factormer.nn.zoo import Card
from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.tasks import TASKS
from factormer_lab.train.export import how_trained
from factormer_lab.train.loop import Run


def make_card(config: AnyRankTraining, run: Run[Any], *, device: str, version: str = "1") -> Card:
    """The card of a run: config, data, cost and figures."""
    training = how_trained(_data(config), config, run, device)
    return Card(config.name, version, config.model, training, run.figures)


def _data(config: AnyRankTraining) -> str:
    kinds = len(config.data) or max(len(TASKS[base].source.names) for base in config.bases)
    count = config.n_buckets * config.per_kind * kinds
    ranks = f"ranks {config.min_rank}–{config.max_rank}"
    if not config.data:
        return f"{count} synthetic matrices of {kinds} kinds, {ranks}"
    names = ", ".join(Path(file).name for file in config.data)
    return f"{count} parts of {names}, {ranks}; figures on rows held out"
