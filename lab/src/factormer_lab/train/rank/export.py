"""From a run of the network that chooses the rank to the card of its weights file."""

from __future__ import annotations

from typing import Any

from factormer.nn.zoo import Card
from factormer_lab.train.export import how_trained
from factormer_lab.train.loop import Run
from factormer_lab.train.rank.config import RankTraining
from factormer_lab.train.rank.data import SHARD
from factormer_lab.train.rank.planted import FACTORS, NOISES, SMALL, WIDE, Family

_HOLDS = (
    "nonnegative data that is a sum of parts plus noise, of the kinds above, with more rows and "
    "columns than components; other data gets probabilities too, which nothing was measured for"
)


def make_card(config: RankTraining, run: Run[Any], *, device: str, version: str = "1") -> Card:
    """The card of a run: config, data, cost and figures."""
    training = {**how_trained(_data(config), config, run, device), "where it holds": _HOLDS}
    return Card(config.name, version, config.model, training, run.figures)


def _data(config: RankTraining) -> str:
    count = (config.n_shards + config.n_high) * SHARD
    families = " and ".join(map(_range, (SMALL, WIDE) if config.wide else (SMALL,)))
    return (
        f"{count} matrices of planted rank, {families}; noise {', '.join(NOISES)}; factors "
        f"{', '.join(FACTORS)}, of unequal strength; figures on {config.n_held_out * SHARD} others"
    )


def _range(family: Family) -> str:
    (low, high), (least, most) = family.ranks, family.sides
    return f"ranks {low}–{high} with {least}–{most} rows and columns"
