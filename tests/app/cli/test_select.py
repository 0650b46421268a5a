"""factormer fit --rank select."""

import json
from pathlib import Path

import numpy as np
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


def test_a_choice_that_is_not_clear_keeps_the_ranks_that_it_names(capsys):
    noise = np.random.default_rng(0).gamma(1.0, size=(40, 30))
    np.save("noise.npy", noise)
    assert main(["fit", "noise.npy", "--rank", "select:2-7", "--max-iter", "5"]) == 0
    told = json.loads(Path("runs/noise/choice.json").read_text())
    assert list(told["probabilities"]) == [str(rank) for rank in range(2, 8)]
    assert not told["clear"]
    fitted = sorted(int(p.name[5:]) for p in Path("runs/noise").glob("rank-*"))
    assert told["rank"] in fitted
    assert len(fitted) > 1
    others = [int(k) for k, p in told["probabilities"].items() if p >= 0.1]
    assert set(others) <= set(fitted)
    assert f"rank {told['rank']} is recommended" in capsys.readouterr().out


@pytest.mark.parametrize("rank", ["select:", "select:0-4", "selected", "select-2"])
def test_bounds_that_are_none_are_refused(rank, capsys):
    assert main(["fit", "data.npy", "--rank", rank]) != 0
    assert "select:2-20" in capsys.readouterr().err


def test_weights_and_a_selected_rank_do_not_go_together(capsys):
    assert main(["fit", "data.npy", "--rank", "select", "--weights", "data.npy"]) != 0
    assert "--rank select takes entries that count the same" in capsys.readouterr().err
