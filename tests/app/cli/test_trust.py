"""factormer fit --repeats, --holdout and --loss select."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factormer import consensus
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
    assert "rank 2: stability of components in 5 of 5 runs on samples drawn anew: " in said
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


def test_new_data_is_drawn_as_suits_the_loss_or_as_asked(counts, capsys):
    command = ["fit", "counts.npy", "--rank", "2,3", "--repeats", "5", "--max-iter", "30"]
    for arguments, kind in (
        ([], "bootstrap"),
        (["--loss", "kl"], "poisson"),
        (["--loss", "kl", "--resample", "bootstrap"], "bootstrap"),
        (["--loss", "kl", "--resample", "none"], "none"),
    ):
        out = "-".join(["run", *arguments])
        assert main([*command, *arguments, "--out", out]) == 0
        assert RunFolder(Path(out)).description()["options"]["resample"] == kind
        said = capsys.readouterr().out
        assert ("is recommended: " in said) == (kind != "none")
        assert ("their stability recommends no rank" in said) == (kind == "none")
    again = ["--loss", "kl", "--resample", "poisson", "--out", "run---loss-kl"]
    assert main([*command, *again]) == 0
    assert main([*command, *again[:2], "--resample", "none", *again[4:]]) == 1
    assert "holds a run with --resample 'poisson', not 'none'" in capsys.readouterr().err


def test_runs_on_drawn_counts_agree_at_the_planted_rank_and_not_at_the_largest(capsys):
    rng = np.random.default_rng(1)
    means = rng.gamma(0.3, size=(80, 3)) @ rng.gamma(0.3, size=(3, 60))
    np.save("planted.npy", rng.poisson(40 * means).astype(float))
    command = ["fit", "planted.npy", "--loss", "kl", "--repeats", "20", "--rank"]
    for ranks in ("2..6", "2..8"):
        assert main([*command, ranks, "--out", ranks]) == 0
        said = capsys.readouterr().out
        assert "rank 3 is recommended: it is the largest rank at which runs on new draws" in said
    assert main([*command, "2,3", "--out", "edge"]) == 0
    assert (
        "As 3 is the largest rank that was tried, try larger ones too." in capsys.readouterr().out
    )


def test_a_run_of_an_earlier_version_continues_with_its_starts(counts, capsys):
    command = ["fit", "counts.npy", "--loss", "kl", "--repeats", "3", "--rank"]
    assert main([*command, "2", "--resample", "none"]) == 0
    path = Path("runs/counts/run.json")
    run = json.loads(path.read_text())
    del run["options"]["resample"]  # as it was before
    path.write_text(json.dumps(run))
    kept = RunFolder(Path("runs/counts")).results()
    capsys.readouterr()
    assert main([*command, "2,3"]) == 0
    said = capsys.readouterr().out
    assert "began so; --fresh draws new data for each run" in said
    assert "runs differ only in their starts" in said
    assert RunFolder(Path("runs/counts")).results()[0] == kept[0]
    assert main([*command, "2,3", "--fresh"]) == 0
    assert RunFolder(Path("runs/counts")).description()["options"]["resample"] == "poisson"


def test_data_with_gaps_varies_the_starts_and_says_so(counts, capsys):
    V = np.load("counts.npy")
    V[3, 4] = np.nan
    np.save("gaps.npy", V)
    command = ["fit", "gaps.npy", "--rank", "2", "--repeats", "3"]
    assert main(command) == 0
    assert "runs differ only in their starts, as new data is drawn" in capsys.readouterr().out
    assert main([*command, "--resample", "bootstrap", "--fresh"]) == 1
    assert "--resample is 'bootstrap', which takes a dense file" in capsys.readouterr().err


def test_samples_in_columns_are_drawn_and_compared(counts, capsys):
    command = ["fit", "counts.npy", "--rank", "2", "--loss", "kl", "--repeats", "4"]
    assert main([*command, "--columns-are", "samples"]) == 0
    folder = RunFolder(Path("runs/counts"))
    kept = folder.consensus(2)
    assert kept is not None
    assert kept["matrix"].shape == (20, 20)
    V, (W, H) = np.load("counts.npy"), (folder.factors(2)[name] for name in "WH")
    found = consensus(V.T, 2, n_runs=4, loss="kl", resample="poisson", max_iter=200, tol=1e-4)
    np.testing.assert_allclose(W, found.H)
    np.testing.assert_allclose(H, found.W)
    assert '"side":"columns"' in folder.report.read_text()


def test_the_consensus_matrix_is_over_samples_also_where_starts_alone_differ(counts):
    command = ["fit", "counts.npy", "--rank", "2", "--repeats", "3", "--resample", "none"]
    assert main([*command, "--columns-are", "samples"]) == 0
    folder = RunFolder(Path("runs/counts"))
    kept = folder.consensus(2)
    assert kept is not None
    assert kept["matrix"].shape == (20, 20)
    assert '"side":"columns"' in folder.report.read_text()


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
        (["--resample", "poisson"], "--resample is 'poisson', which draws new data for each of"),
        (
            ["--repeats", "3", "--resample", "all"],
            "--resample is 'all'; choose one of 'poisson', 'bootstrap'",
        ),
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
