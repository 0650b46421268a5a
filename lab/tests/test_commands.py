"""The commands that the lab adds to factormer: what they print and make, and their errors."""

from pathlib import Path

import pytest
import torch

from factormer.app.cli import main
from factormer.app.cli.wording import typed
from factormer.nn.zoo import load_any_rank, load_factormer, load_rank, read_card
from factormer_lab.train.anyrank import evaluate
from factormer_lab.train.rank import data
from factormer_lab.train.rank.planted import SMALL, WIDE
from lab.tests.train.cases import assert_same_weights, shrink

TINY = """
name = "tiny"
n_steps = 2
epochs = 2
batch = 2
lr = 1e-3

[model]
rank = 3
width = 8
heads = 2
n_pairs = 1
ffn_width = 8
"""


TINY_ANY_RANK = """
name = "tiny"
kind = "any-rank"
n_buckets = 2
per_kind = 1
max_rank = 3
max_size = 14
n_reference = 8
n_steps = 2
lanes = 1
batch = 4
n_iter = 4
truncate = 2
horizon = 2

[model]
width = 4
messages = 2
"""


@pytest.fixture
def config(tmp_path, monkeypatch) -> Path:
    """A training run of a second, with its working folder as the current one."""
    shrink(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


TINY_RANK = """
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


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


# Training


def test_train_writes_weights_with_a_card(config, capsys):
    assert main(["train", str(config)]) == 0
    path = Path("runs/tiny/tiny.safetensors")
    assert f"weights: {path}" in capsys.readouterr().out
    card = read_card(path)
    assert (card.name, card.ranks, card.use) == ("tiny", "rank 3", "init")
    assert card.training["finished"]
    assert card.training["steps"] == 8
    assert card.training["options"]["lr"] == 1e-3
    assert len(card.figures) == 2


def test_train_serves_the_any_rank_network_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "SHAPES", ((8, 7, 2),))
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY_ANY_RANK)
    assert main(["train", "tiny.toml"]) == 0
    path = Path("runs/tiny/tiny.safetensors")
    assert f"weights: {path}" in capsys.readouterr().out
    card = read_card(path)
    assert (card.name, card.use, card.ranks) == ("tiny", "accelerator", "any rank")
    assert card.training["finished"]
    assert load_any_rank(path).config == card.config


def test_train_that_has_no_time_for_its_data_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY_ANY_RANK)
    assert main(["train", "tiny.toml", "--minutes", "0"]) == 0
    told = capsys.readouterr().out
    assert "--minutes ended while drawing matrices, 1 of" in told
    assert "allow more time" in told
    assert main(["train", "tiny.toml", "--minutes", "-1"]) == 1
    assert "--minutes is -1; it must be at least 0" in capsys.readouterr().err


def test_train_stopped_goes_on_to_the_same_weights(config, tmp_path, capsys):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", str(config), "--out", str(whole)]) == 0
    assert main(["train", str(config), "--out", str(parts), "--minutes", "0"]) == 0
    assert "stopped at step 1; the same command continues from there" in capsys.readouterr().out
    assert not read_card(parts / "tiny.safetensors").training["finished"]
    assert main(["train", str(config), "--out", str(parts)]) == 0
    assert "stopped at step" not in capsys.readouterr().out
    networks = [load_factormer(folder / "tiny.safetensors") for folder in (whole, parts)]
    assert_same_weights(*networks)


def test_train_begins_from_a_file_of_weights(config, tmp_path):
    assert main(["train", str(config), "--out", "first"]) == 0
    second = tmp_path / "second.toml"
    text = TINY.replace("lr = 1e-3", 'lr = 0.0\nwarm_start = "first/tiny.safetensors"')
    second.write_text(text.replace('"tiny"', '"second"') + "n_points = 2\n")
    assert main(["train", str(second), "--out", "second"]) == 0
    first, model = (load_factormer(f"{p}.safetensors") for p in ("first/tiny", "second/second"))
    assert model.config.n_points == 2
    assert torch.equal(model.extract.weight, first.extract.weight)
    assert torch.equal(model.embed.weight[:, 3:], first.embed.weight)


def test_train_makes_a_network_that_chooses(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "SHARD", 3)
    tiny = {"sides": (20, 24), "ranks": (1, 3)}
    monkeypatch.setattr(data, "SMALL", SMALL._replace(**tiny))
    monkeypatch.setattr(data, "WIDE", WIDE._replace(**tiny))
    monkeypatch.setattr(data, "_TOPS", {"small": 4, "wide": 4})
    Path("mine.toml").write_text(TINY_RANK)
    assert main(["train", "mine.toml"]) == 0
    assert "weights: runs/mine/mine.safetensors" in capsys.readouterr().out
    assert load_rank(Path("runs/mine/mine.safetensors")).config.width == 8


# Wrong use


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        (None, [], "there is no file .*run.toml; configs are in lab/configs"),
        ("name = ", [], "run.toml is not valid TOML: "),
        ('name = "a"\nspeed = 3', [], r"unknown \['speed'\]; options are "),
        ('name = "a"\nwarm_start = "nonsense"', [], "there is no network 'nonsense'; the shipped"),
        ('name = "a"\nwarm_start = "x.safetensors"', [], "there is no weights file x.safetensors"),
        ('name = "a"\nbatch = 500', [], "batch is 500; it must be at most 4"),
        ('name = "a"', ["--device", "gpu"], "device is 'gpu', which is not on this machine"),
        ('name = "a"', ["--out", "tiny.toml"], "tiny.toml"),
    ],
)
def test_error_is_a_sentence_and_no_traceback(config, capsys, text, arguments, sentence):
    path = config.with_name("run.toml")
    if text is not None:
        path.write_text(text)
    assert main(["train", str(path), *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("factormer: ")
    assert "Traceback" not in captured.out + captured.err
    with pytest.raises((ValueError, OSError), match=sentence) as caught:
        main(["--debug", "train", str(path), *arguments])
    number = getattr(caught.value, "errno", None)  # what the system says is put into words
    assert number is not None or captured.err == f"factormer: {typed(caught.value)}\n"


def test_unknown_figure_is_refused_with_a_sentence(tmp_path, capsys):
    assert main(["reproduce", "nonsense", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("factormer: there is no figure 'nonsense'; choose")
