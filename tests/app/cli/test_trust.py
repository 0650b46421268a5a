"""factormer fit --repeats, --holdout and --loss select."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factormer.app.cli import main
from factormer.app.runs import RunFolder, trust
from factormer.run.result import Status

pytestmark = pytest.mark.usefixtures("data_files")


@pytest.fixture
def counts(data_files):
    rng = np.random.default_rng(0)
    V = rng.poisson(20 * rng.gamma(0.4, size=(40, 2)) @ rng.gamma(0.4, size=(2, 20)))
    np.save("counts.npy", V.astype(float))


def test_repeats_keep_the_consensus_and_its_stability(counts, capsys):
    command = ["fit", "counts.npy", "--rank", "2,3", "--repeats", "5"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "rank 2: stability of components in 5 of 5 runs: 1.00 1.00" in said
    folder = RunFolder(Path("runs/counts"))
    two, three = folder.results()
    assert two.runs_kept == 5
    assert len(three.stability or []) == 3
    kept = folder.arrays("rank-2", "consensus.npz")
    assert kept["matrix"].shape == (40, 40)
    lines = Path("runs/counts/rank-2/stability.csv").read_text().splitlines()
    assert lines[0] == "component,share,stability,cosine"
    assert len(lines) == 3
    assert '"stability":[' in folder.report.read_text()
    W, H = (folder.factors(2)[name] for name in "WH")
    assert two.rmse == pytest.approx(np.sqrt(np.mean((np.load("counts.npy") - W @ H.T) ** 2)))
    assert main(command) == 0  # nothing is left to do
    assert main([*command[:-1], "6"]) == 1
    assert "holds a run with --repeats 5, not 6" in capsys.readouterr().err


def test_holdout_tells_the_error_of_hidden_entries(counts, capsys):
    assert main(["fit", "counts.npy", "--rank", "1..3", "--loss", "1", "--holdout", "0.2"]) == 0
    said = capsys.readouterr().out
    assert "rank 2: loss of a hidden entry" in said
    assert "predicted best at rank 2" in said
    results = RunFolder(Path("runs/counts")).results()
    assert [len(result.held_out or []) for result in results] == [5, 5, 5]


def test_loss_is_selected_with_its_reason(counts, capsys):
    command = ["fit", "counts.npy", "--rank", "2", "--loss", "select"]
    assert main(command) == 0
    assert "loss kullback-leibler: the variance of residuals grows like the mean" in (
        capsys.readouterr().out
    )
    run = RunFolder(Path("runs/counts")).description()
    assert run["options"]["loss"] == "kullback-leibler"
    assert run["selected_loss"]["kind"] == "poisson"
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["selected_loss"]["loss"] == "kullback-leibler"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--repeats", "1"], "repeats is 1; it must be a whole number of at least 2"),
        (["--holdout", "1.5"], "holdout is 1.5; it must be a share"),
        (["--symmetric", "--repeats", "3"], "do not go with --symmetric"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(options, sentence, capsys):
    np.save("square.npy", np.ones((6, 6)))
    assert main(["fit", "square.npy", "--rank", "2", *options]) == 1
    assert sentence in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_consensus_that_time_cut_short_says_so(counts, monkeypatch, capsys):
    whole = trust.consensus

    def cut(*args, **options):
        return replace(whole(*args, **options), status=Status.TIME_LIMIT)

    command = ["fit", "counts.npy", "--rank", "2", "--repeats", "3"]
    assert main([*command, "--out", "whole"]) == 0
    assert "converged" in capsys.readouterr().out
    monkeypatch.setattr(trust, "consensus", cut)
    assert main([*command, "--out", "cut"]) == 0
    assert "time limit" in capsys.readouterr().out
    [one], [other] = (RunFolder(Path(name)).results() for name in ("whole", "cut"))
    assert (one.status, other.status) == ("CONVERGED", "TIME_LIMIT")
    assert one.message == "3 of 3 runs are kept, and all of them met the tolerance"
    assert other.message.startswith("the time limit was reached before all runs were done")


def test_an_interrupted_consensus_starts_again(counts, monkeypatch):
    whole = trust.consensus

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    command = ["fit", "counts.npy", "--rank", "2,3", "--repeats", "3"]
    monkeypatch.setattr(trust, "consensus", interrupted)
    assert main(command) == 130
    monkeypatch.setattr(trust, "consensus", whole)
    assert main(command) == 0
    assert [result.rank for result in RunFolder(Path("runs/counts")).results()] == [2, 3]
