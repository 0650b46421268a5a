"""From a run of the Factormer for every rank to the card of its weights file."""

from __future__ import annotations

from typing import Any

from factormer.nn.zoo import Card
from factormer_lab.train.anyfactormer.config import AnyFactormerTraining
from factormer_lab.train.anyrank.problems import KINDS
from factormer_lab.train.export import how_trained
from factormer_lab.train.loop import Run


def make_card(
    config: AnyFactormerTraining, run: Run[Any], *, device: str, version: str = "1"
) -> Card:
    """The card of a run: config, data, cost and figures."""
    count = config.n_buckets * config.per_kind * len(KINDS)
    data = (
        f"{count} synthetic matrices, half of {len(KINDS)} kinds, half products with 10 % noise, "
        f"ranks 2–{config.max_rank}"
    )
    training = how_trained(data, config, run, device)
    return Card(config.name, version, config.model, training, run.figures)
