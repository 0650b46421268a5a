"""A training run of a second: small matrices, a small network; used here and by child processes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.networks import small_config

from factormer_lab.train import synthetic
from factormer_lab.train.config import TrainConfig
from factormer_lab.train.factormer import train_factormer
from factormer_lab.train.synthetic import SizeClass

CONFIG = TrainConfig(
    name="tiny", model=small_config(), n_steps=2, epochs=3, batch=2, lr=1e-3, ema=0.5, seed=3
)
N_BATCHES = 4  # an epoch, of the classes below


def shrink(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Put classes of a few small matrices in place of the paper's; `setattr`, or monkeypatch's."""
    classes = SizeClass(4, (4, 6), (4, 6)), SizeClass(4, (3, 4), (5, 7))
    set_attribute(synthetic, "TRAINING", classes)
    set_attribute(synthetic, "VALIDATION", {"small": classes[0], "large": classes[1]})


def assert_same_weights(a: torch.nn.Module, b: torch.nn.Module) -> None:
    """Assert that two networks are equal to the last bit."""
    weights, others = a.state_dict(), b.state_dict()
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


LONG = replace(CONFIG, epochs=6)  # there is time left to be killed in


def train_to_be_killed(folder: str) -> None:
    """What the killed process runs: a checkpoint after every step, a line after every epoch."""
    shrink(setattr)

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "figures":
            print(event["step"], flush=True)  # noqa: T201

    train_factormer(LONG, Path(folder), report=report, checkpoint_seconds=0)
