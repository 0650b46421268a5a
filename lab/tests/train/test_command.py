"""The command `train` without its screen, and as a module where typer and rich are missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from factormer.nn.zoo import read_card
from factormer_lab.train import command
from factormer_lab.train.__main__ import main
from lab.tests.train.cases import shrink

ROOT = Path(__file__).parents[3]
TINY = """
name = "tiny"
n_steps = 1
n_accel = 1
objective = "log"
batch = 2
lr_decay = 1.0
schedule = "cosine"
alive = true

[model]
shared = false
rank = 3
width = 8
heads = 2
n_pairs = 1
ffn_width = 8
"""
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numba", "typer", "rich", "dask", "beartype"}:
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
from factormer_lab.train.__main__ import main
from lab.tests.train.cases import shrink
shrink(setattr)
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def _small(tmp_path, monkeypatch):
    shrink(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY)


def test_module_trains_for_the_seconds_given_and_prints_the_card_last(capsys):
    assert main(["tiny.toml", "--seconds", "0.5"]) == 0
    path = Path("runs/tiny/tiny.safetensors")
    told = capsys.readouterr().out
    assert "median RMSE at 0, 1, 5, 20: small " in told
    card = read_card(path)
    assert told.endswith(f"weights: {path}\n{card}\n")
    assert card.training["options"]["seconds"] == 0.5
    assert card.training["finished"]
    assert card.training["planned steps"] == card.training["steps"]


def test_training_begins_from_another_and_says_so():
    assert main(["tiny.toml", "--out", "first", "--seconds", "0.2"]) == 0
    first = Path("first/tiny.safetensors")
    assert main(["tiny.toml", "--out", "second", "--seconds", "0.2", "--from", str(first)]) == 0
    training = read_card(Path("second/tiny.safetensors")).training
    assert training["options"]["warm_start"] == str(first)
    assert not training["options"]["alive"]
    assert training["begun from"]["steps"] == read_card(first).training["steps"]


def test_module_needs_neither_typer_nor_numba(tmp_path):
    order = [sys.executable, "-c", WITHOUT, str(tmp_path / "tiny.toml"), "--seconds", "0.1"]
    order += ["--out", str(tmp_path / "run")]
    subprocess.run(order, cwd=ROOT, check=True, capture_output=True)
    assert read_card(tmp_path / "run" / "tiny.safetensors").training["finished"]


def test_config_is_found_by_its_name():
    assert command.read(Path("init-r10-paper")).options.name == "init-r10-paper"


def test_options_of_one_rank_are_refused_for_other_networks():
    with pytest.raises(ValueError, match="--seconds and --from are for networks of one rank"):
        command.read(Path("any-rank"), seconds=3.0)


def test_unknown_kind_is_refused_with_the_known_ones():
    Path("other.toml").write_text('name = "a"\nkind = "other"')
    with pytest.raises(ValueError, match="kind is 'other'; choose one of any-rank, "):
        command.read(Path("other.toml"))
