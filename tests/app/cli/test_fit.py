"""factormer fit, report and bench: what scripts rely on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer.testing

from factormer.app.cli import app, bar, fit, main
from factormer.app.cli.fit import parse_ranks
from factormer.app.runs import RunFolder

pytestmark = pytest.mark.usefixtures("data_files")


# What it does


def test_fit_keeps_a_run_and_says_how_good_it_is(capsys):
    assert main(["fit", "data.csv", "--rank", "3", "--max-iter", "50"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""  # no progress where stderr is no terminal
    table = "table separated by commas; labels in the first line and the first column"
    assert f"data 30×16: {table}\n" in captured.out
    assert "  rows: 30 samples: s0, s1, …, s29\n" in captured.out
    assert "  columns: 16 columns: gene0, gene1, …, gene15\n" in captured.out
    assert "report: runs/data/report.html" in captured.out
    made = {str(path.relative_to("runs/data")) for path in Path("runs/data").rglob("*.*")}
    files = ("factors.npz", "H.csv", "W.csv", "trace.csv", "views.npz", "result.json")
    assert made == {
        "run.json",
        "axes.json",
        "data.npz",
        "report.html",
        *(f"rank-3/{name}" for name in files),
    }
    assert Path("runs/data/rank-3/W.csv").read_text().startswith("sample,component 1")
    assert "s29," in Path("runs/data/rank-3/W.csv").read_text()


def test_fit_says_what_is_not_known_before_it_fits(capsys, monkeypatch):
    Path("holes.csv").write_text("# by us\nx y z\n1 NA 3\n4 5 6\n7 8 NA\n")

    def stop(self, rank):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit.Bar, "begin", stop)
    assert main(["fit", "holes.csv", "--rank", "1"]) == 130
    told = "holes 3×3: table separated by blanks; labels in the first line\n"
    told += "  rows: 3 rows without labels\n  columns: 3 columns: x, y, z\n"
    assert capsys.readouterr().out == f"{told}  not known: 2 of 9 entries\n"


JSON_KEYS = {
    "rank",
    "status",
    "message",
    "iterations",
    "seconds",
    "objective",
    "rmse",
    "relative_error",
    "explained",
    "svd_rmse",
    "shares",
    "stability",
    "runs_kept",
    "held_out",
    "held_out_rounding",
    "divergence",
    "explained_divergence",
    "mean_weight",
}


def test_json_is_all_that_is_printed_and_has_a_schema(capsys):
    assert main(["fit", "data.npy", "--rank", "2..4", "--out", "here", "--json"]) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert summary.keys() == {"schema", "run", "report", "data", "interrupted", "results"}
    assert (summary["schema"], summary["run"], summary["interrupted"]) == (1, "here", False)
    assert Path(summary["report"]).is_file()
    assert summary["data"]["shape"] == [30, 16]
    assert [result["rank"] for result in summary["results"]] == [2, 3, 4]
    for result in summary["results"]:
        assert result.keys() == JSON_KEYS
        assert result["svd_rmse"] <= result["rmse"] + 1e-9
        assert len(result["shares"]) == result["rank"]


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("10", [10]),
        ("2..5", [2, 3, 4, 5]),
        ("2-4", [2, 3, 4]),
        ("2:4", [2, 3, 4]),
        ("8,2,4", [2, 4, 8]),
        ("2..3,3,9", [2, 3, 9]),
    ],
)
def test_ranks_are_numbers_ranges_and_lists(text, ranks):
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["0", "-1", "5..2", "2...5", "ten", "", "2.5", "3,,4"])
def test_other_ranks_are_refused(text, capsys):
    assert main(["fit", "data.npy", f"--rank={text}"]) == 1
    assert capsys.readouterr().err.startswith(f"factormer: --rank is {text!r}; it must be a number")


def test_options_reach_the_fit(capsys):
    np.save("mask.npy", np.arange(30 * 16).reshape(30, 16) % 7 > 0)
    arguments = "--rank 2 --loss 1.5 --regularize-w l1:0.01 --regularize-w l2:0.1 --regularize-h"
    arguments += " l2:0.1 --mask mask.npy --max-iter 5 --tol 0 --time-limit 60 --device cpu"
    arguments += " --seed 3 --accelerator none --init random --title Mine --out run --columns-are"
    assert main(["fit", "data.npy", *arguments.split(), "4x4"]) == 0
    run = RunFolder(Path("run"))
    assert run.description()["options"] == {
        "loss": 1.5,
        "regularize_w": ["l1:0.01", "l2:0.1"],
        "regularize_h": ["l2:0.1"],
        "missing": None,
        "symmetric": False,
        "init": "random",
        "solver": "auto",
        "accelerator": None,
        "max_iter": 5,
        "tol": 0.0,
        "time_limit": 60.0,
        "device": "cpu",
        "seed": 3,
        "n_init": 1,
        "scale": "balanced",
        "repeats": None,
        "resample": "none",
        "holdout": None,
    }
    assert run.description()["command"].startswith("factormer fit data.npy --rank 2 --loss 1.5")
    assert run.description()["data"]["name"] == "Mine"
    assert run.description()["data"]["has_mask"]
    assert run.axes()[1].grid == (4, 4)
    [result] = run.results()
    assert (result.iterations, result.svd_rmse) == (5, None)


def test_labels_of_a_table_are_where_the_user_says(capsys):
    np.savetxt("bare.csv", np.arange(1.0, 13).reshape(4, 3), delimiter=";")
    command = ["fit", "bare.csv", "--rank", "1", "--json", "--out"]
    for options, shape in (
        ([], [4, 3]),
        (["--header"], [3, 3]),
        (["--index"], [4, 2]),
        (["--header", "--index"], [3, 2]),
    ):
        assert main([*command, "".join(options) or "plain", *options]) == 0
        data = json.loads(capsys.readouterr().out)["data"]
        assert data["shape"] == shape
        assert data["source"].startswith("table separated by semicolons; ")
        assert data["rows"].startswith(f"{shape[0]} rows")


def test_weights_come_from_a_file(capsys):
    V = np.load("data.npy")
    np.save("weights.npy", np.linspace(0, 1, V.size).reshape(V.shape))
    np.savetxt("rows.csv", np.linspace(0.5, 1, len(V)))
    for file in ("weights.npy", "rows.csv"):
        assert main(["fit", "data.npy", "--rank", "2", "--weights", file, "--out", file[:-4]]) == 0
        assert RunFolder(Path(file[:-4])).description()["data"]["has_weights"]
    assert main(["fit", "data.npy", "--rank", "2", "--mask", "weights.npy", "--out", "m"]) == 1
    assert "neither 0 nor 1" in capsys.readouterr().err
    assert not Path("m").exists()


def test_a_mask_may_be_of_another_kind_of_file_than_the_data(capsys):
    np.savetxt("mask.csv", np.ones((30, 16)), delimiter=",", fmt="%d")
    np.save("mask.npy", np.ones((30, 16), dtype=bool))
    for file in ("mask.csv", "mask.npy"):
        command = ["fit", "data.csv", "--index", "--rank", "2", "--mask", file, "--out", file[-3:]]
        assert main([*command, "--header"]) == (1 if file == "mask.csv" else 0)
    assert "mask has shape (29, 15); it must have that of V, (30, 16)" in capsys.readouterr().err


def test_progress_tells_error_iteration_and_time_left(capsys, monkeypatch):
    shown = []
    update = bar.Progress.update
    monkeypatch.setattr(
        bar.Progress, "update", lambda *a, **k: (shown.append(k.get("state")), update(*a, **k))
    )
    arguments = ["--rank", "2..3", "--max-iter", "20", "--time-limit", "60", "--tol", "0"]
    assert main(["fit", "data.npy", *arguments, "--progress"]) == 0
    last = [text for text in shown if text][-1]
    assert last.startswith("error ")
    assert "iteration 20/20" in last
    assert last.endswith("at most 0:00 left")
    assert "report:" in capsys.readouterr().out


def test_several_runs_of_each_rank(capsys, monkeypatch):
    shown = []
    update = bar.Progress.update
    monkeypatch.setattr(
        bar.Progress, "update", lambda *a, **k: (shown.append(k.get("state")), update(*a, **k))
    )
    arguments = ["--rank", "2..3", "--max-iter", "20", "--n-init", "4", "--out", "run"]
    assert main(["fit", "data.npy", *arguments, "--progress"]) == 0
    assert [text for text in shown if text][-1].endswith("4 of 4 runs")
    assert RunFolder(Path("run")).description()["options"]["n_init"] == 4
    assert [result.rank for result in RunFolder(Path("run")).results()] == [2, 3]
    assert Path("run/report.html").is_file()
    assert {path.name for path in Path("run").iterdir()} == {
        "run.json", "axes.json", "data.npz", "report.html", "rank-2", "rank-3"
    }  # fmt: skip


def test_report_makes_the_page_anew(capsys):
    assert main(["fit", "data.npy", "--rank", "2", "--out", "run"]) == 0
    Path("run/report.html").unlink()
    assert main(["report", "run"]) == 0
    assert "report: run/report.html" in capsys.readouterr().out
    assert Path("run/report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_bench_races_scikit_learn(capsys):
    assert main(["bench", "data.csv", "--rank", "2", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    assert "data 30×16, rank 2; medians of 1" in out
    assert out.count("RMSE") == 2
    assert main(["bench", "data.csv", "--rank", "2", "--repeats", "2", "--json"]) == 0
    race = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in race["rows"]] == ["factormer", "scikit-learn (cd)"]
    assert all(row["seconds"] > 0 for row in race["rows"])


# Going on


def test_the_same_command_goes_on_after_an_interrupt(capsys, monkeypatch):
    command = ["fit", "data.npy", "--rank", "2..4", "--tol", "0", "--out", "run", "--progress"]

    def stop(self, rank, row):
        if (rank, row.iteration) == (3, 7):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fit.Bar, "watch", stop)
        assert main([*command, "--json"]) == 130
    captured = capsys.readouterr()
    assert "interrupted; the same command continues from here" in captured.err
    summary = json.loads(captured.out)
    assert summary["interrupted"]
    assert [result["status"] for result in summary["results"]] == ["MAX_ITER", "INTERRUPTED"]
    assert Path("run/report.html").is_file()
    assert main(command) == 0
    assert [result.iterations for result in RunFolder(Path("run")).results()] == [500] * 3


def test_an_interrupt_before_anything_is_done_ends_with_130(capsys, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["factormer.app.read"], "read", stop)
    assert main(["fit", "data.npy"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_killed_run_goes_on_with_the_ranks_that_are_left(tmp_path):
    np.save("wide.npy", np.random.default_rng(1).random((200, 80)))
    command = ["fit", "wide.npy", "--tol", "0", "--out"]
    source = Path(__file__).parents[3] / "src"
    code = "import sys; from factormer.app.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command, "killed", "--rank", "2..60"],
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    try:
        deadline = time.monotonic() + 120
        while not Path("killed/rank-3").exists():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline, "the run made no second rank"
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = {path: path.stat().st_mtime_ns for path in Path("killed").glob("rank-*/result.json")}
    assert 2 <= len(done) < 59
    last = max(int(path.parent.name.removeprefix("rank-")) for path in done) + 2
    assert main([*command, "killed", "--rank", f"2..{last}"]) == 0
    assert all(path.stat().st_mtime_ns == before for path, before in done.items())
    assert main([*command, "whole", "--rank", f"2..{last}"]) == 0
    killed, whole = (RunFolder(Path(name)).results() for name in ("killed", "whole"))
    assert [result.rank for result in killed] == list(range(2, last + 1))
    for ours, theirs in zip(killed, whole, strict=True):
        assert ours.rmse == pytest.approx(theirs.rmse, rel=1e-6)


def test_the_signal_that_ends_processes_keeps_what_was_done():
    np.save("wide.npy", np.random.default_rng(1).random((300, 200)))
    command = ["fit", "wide.npy", "--tol", "0", "--rank", "40", "--max-iter", "1000000"]
    source = Path(__file__).parents[3] / "src"
    process = subprocess.Popen(
        [sys.executable, "-m", "factormer", *command, "--out", "run", "--progress", "--json"],
        env={**os.environ, "PYTHONPATH": str(source), "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not Path("run/data.npz").exists():
            assert time.monotonic() < deadline, "the run did not begin"
            time.sleep(0.01)
        time.sleep(1.0)
        process.terminate()
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    [result] = json.loads(out)["results"]
    assert result["status"] == "INTERRUPTED"
    assert RunFolder(Path("run")).point(40) is not None


# The shell


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_there_for(shell, monkeypatch):
    # What the shell runs is the command itself, with a variable that asks for the script.
    runner = typer.testing.CliRunner()
    done = runner.invoke(
        app, [], env={"_FACTORMER_COMPLETE": f"source_{shell}"}, prog_name="factormer"
    )
    assert done.exit_code == 0
    assert "_FACTORMER_COMPLETE" in done.output


def test_completion_offers_commands_and_options():
    def offered(words: str, position: int) -> str:
        env = {
            "_FACTORMER_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        }
        return typer.testing.CliRunner().invoke(app, [], env=env, prog_name="factormer").output

    assert {"fit", "report", "bench"} <= set(offered("factormer ", 1).split())
    assert "--rank" in offered("factormer fit --r", 2)
