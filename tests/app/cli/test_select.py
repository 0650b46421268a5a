"""factormer fit --rank select, and the training of the network behind it."""

import json
from pathlib import Path

import pytest

from factormer.app.cli import main
from factormer.nn.zoo import load_rank
from factormer.train.rank import data
from factormer.train.rank.planted import SMALL, WIDE

pytestmark = pytest.mark.usefixtures("data_files")

TINY = """
name = "mine"
kind = "rank"
n_shards = 1
n_held_out = 1
wide = 1
n_steps = 2
batch = 2

[model]
width = 8
n_heads = 2
n_layers = 1
"""


def test_a_selected_rank_is_fitted_and_the_choice_kept(capsys):
    assert main(["fit", "data.npy", "--rank", "select"]) == 0
    told = json.loads(Path("runs/data/choice.json").read_text())
    assert told["rank"] == 3
    assert told["reason"] in capsys.readouterr().out
    assert Path("runs/data/rank-3/result.json").is_file()
    assert Path("runs/data/choice.png").read_bytes().startswith(b"\x89PNG")
    assert set(told["criteria"]) >= {"BIC", "stability"}
    assert main(["fit", "data.npy", "--rank", "select", "--json"]) == 0  # continues
    assert json.loads(capsys.readouterr().out)["choice"] == told


def test_weights_and_a_selected_rank_do_not_go_together(capsys):
    assert main(["fit", "data.npy", "--rank", "select", "--weights", "data.npy"]) != 0
    assert "--rank select takes entries that count the same" in capsys.readouterr().err


def test_train_makes_a_network_that_chooses(capsys, monkeypatch):
    monkeypatch.setattr(data, "SHARD", 3)
    tiny = {"sides": (20, 24), "ranks": (1, 3)}
    monkeypatch.setattr(data, "SMALL", SMALL._replace(**tiny))
    monkeypatch.setattr(data, "WIDE", WIDE._replace(**tiny))
    monkeypatch.setattr(data, "_TOPS", {"small": 4, "wide": 4})
    Path("mine.toml").write_text(TINY)
    assert main(["train", "mine.toml"]) == 0
    assert "weights: runs/mine/mine.safetensors" in capsys.readouterr().out
    assert load_rank(Path("runs/mine/mine.safetensors")).config.width == 8
