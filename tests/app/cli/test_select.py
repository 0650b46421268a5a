"""factormer fit --rank select."""

import json
from pathlib import Path

import pytest

from factormer.app.cli import main

pytestmark = pytest.mark.usefixtures("data_files")


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
