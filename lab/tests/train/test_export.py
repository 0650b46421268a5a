"""The card of a run says what was trained, on what, at what cost and how well it does."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from tests.networks import random_network, small_config

from factormer.nn.zoo import read_card, save_model
from factormer_lab.train.export import figures, make_card
from factormer_lab.train.loop import Run
from lab.tests.train.cases import CONFIG

MEDIANS = [float(k) for k in range(21)]


def run_of(**changes) -> Run[Any]:
    options = {
        "finished": True,
        "step": 12,
        "total": 24,
        "seconds": 34.5,
        "figures": {"small": MEDIANS},
    }
    return Run(model=random_network(CONFIG.model), **(options | changes))


def test_card_says_what_was_trained_and_at_what_cost():
    card = make_card(CONFIG, run_of(), device="cpu", version="2")
    assert (card.name, card.version, card.config) == ("tiny", "2", CONFIG.model)
    assert (card.training["steps"], card.training["finished"]) == (12, True)
    assert card.training["seconds"] == 34
    assert card.training["device"].startswith("CPU")
    assert card.training["torch"] == torch.__version__
    assert card.training["options"] == {k: v for k, v in asdict(CONFIG).items() if k != "model"}


def test_unfinished_run_says_so_in_words():
    card = make_card(CONFIG, run_of(finished=False), device="cpu")
    assert not card.training["finished"]
    assert "steps: 12 of 24: this stage of the training was stopped early" in str(card)
    assert "finished" not in str(card)


def test_card_survives_its_file(tmp_path):
    run, path = run_of(), tmp_path / "tiny.safetensors"
    card = make_card(CONFIG, run, device="cpu")
    save_model(run.model, card, path)
    assert read_card(path) == card
    json.dumps(asdict(card))


@pytest.mark.parametrize(("n_points", "first"), [(1, 0), (2, 1)])
def test_initialization_counts_from_0_and_acceleration_from_1(n_points, first):
    config = replace(CONFIG, model=small_config(n_points=n_points))
    (table,) = figures(config, {"small": MEDIANS}).values()
    assert table[f"iteration {first}"] == MEDIANS[0]
    assert table[f"iteration {first + 20}"] == MEDIANS[20]
    assert all(table[f"iteration {k + first}"] == k for k in (1, 2, 3, 5, 10))
