"""`factormer fit` of files beyond memory: in blocks, with factors and counts of passes."""

import json
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from rich.progress import Progress
from scipy.optimize import nnls
from scipy.sparse import csr_array

from factormer import factorize
from factormer.app.cli import main
from factormer.app.cli.large import Outlook, _Passes, wait
from factormer.data.journal import keep_passes
from factormer.data.outofcore import OutOfCore, blocks_of
from factormer.data.sources import source_of
from factormer.run.trace import Row

M, N, R = 400, 150, 3
LIMIT = ["--memory-limit", "900kB"]


@pytest.fixture
def V():
    rng = np.random.default_rng(1)
    return rng.exponential(size=(M, R)) @ rng.exponential(size=(R, N)) + rng.random((M, N))


def ran(argv):
    return main([str(arg) for arg in argv])


def test_a_file_beyond_the_limit_is_fitted_in_blocks(V, tmp_path, capsys):
    np.save(tmp_path / "V.npy", V)
    out = tmp_path / "run"
    code = ran(["fit", tmp_path / "V.npy", "--rank", "2..3", "--out", out, *LIMIT, "--json"])
    assert code == 0
    said = json.loads(capsys.readouterr().out)
    low, high = said["results"]
    assert (low["rank"], high["rank"]) == (2, 3)
    assert high["rmse"] == pytest.approx(factorize(V, R).rmse, rel=1e-3)
    assert high["passes"] >= 3
    assert low["passes"] == high["passes"] - 2 or low["passes"] >= 1  # the sketch is shared
    W, H = (np.load(out / "rank-3" / f"{name}.npy") for name in "WH")
    assert np.sqrt(np.mean((V - W @ H.T) ** 2)) == pytest.approx(high["rmse"], rel=1e-6)
    header, *rows = (out / "rank-3" / "trace.csv").read_text().splitlines()
    assert header == "iteration,passes,seconds,rmse"
    assert int(rows[-1].split(",")[1]) == high["passes"]
    assert not (out / ".passes").exists()  # which are kept only until all is done


def test_a_fit_that_was_cut_short_is_continued_by_the_same_command(V, tmp_path, monkeypatch):
    np.save(tmp_path / "V.npy", V)
    command = ["fit", tmp_path / "V.npy", "--rank", "3", *LIMIT, "--out"]
    assert ran([*command, tmp_path / "whole"]) == 0
    plain, kept = OutOfCore.sweep, []

    def gone(self, *args, **options):
        kept.append(1)
        if len(kept) == 4:
            raise OSError("the disk was unplugged")
        return plain(self, *args, **options)

    monkeypatch.setattr(OutOfCore, "sweep", gone)
    assert ran([*command, tmp_path / "run"]) == 1
    assert len(list((tmp_path / "run" / ".passes").glob("pass-*.npz"))) == 3
    kept.append(1)
    assert ran([*command, tmp_path / "run"]) == 0
    whole, again = (np.load(tmp_path / name / "rank-3" / "W.npy") for name in ("whole", "run"))
    np.testing.assert_allclose(again, whole, rtol=1e-12)
    assert not (tmp_path / "run" / ".passes").exists()


def test_files_of_the_user_stay(V, tmp_path, capsys):
    np.save(tmp_path / "V.npy", V)
    out, command = tmp_path / "run", ["fit", tmp_path / "V.npy", "--rank", "2", *LIMIT, "--out"]
    mine = [out / "passes" / "thesis.txt", out / "notes.new", out / ".passes" / "thesis.txt"]
    for file in mine:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    for fresh in ([], ["--fresh"]):
        assert ran([*command, out, *fresh]) == 1
        assert "holds thesis.txt, which is not of them" in " ".join(capsys.readouterr().err.split())
    mine.pop().rename(tmp_path / "thesis.txt")
    assert ran([*command, out, "--fresh"]) == 0
    assert all(file.read_text() == "mine" for file in mine)


def test_ranks_that_are_done_are_not_fitted_again(V, tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "V.npy", V)
    out, limit = tmp_path / "run", [*LIMIT, "--json"]
    command = ["fit", tmp_path / "V.npy", "--out", out, *limit]
    assert ran([*command, "--rank", "3"]) == 0
    first = json.loads(capsys.readouterr().out)["results"]
    kept = (out / "rank-3" / "W.npy").stat().st_mtime_ns
    assert ran([*command, "--rank", "2,3"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [row["rank"] for row in results] == [2, 3]
    assert results[1:] == first
    assert (out / "rank-3" / "W.npy").stat().st_mtime_ns == kept
    monkeypatch.setattr(OutOfCore, "sweep", lambda *args, **options: pytest.fail("V was read"))
    assert ran([*command, "--rank", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == results[:1]
    assert len(json.loads((out / "run.json").read_text())["results"]) == 2


def test_runs_on_other_data_or_with_other_options_are_refused(V, tmp_path, capsys):
    np.save(tmp_path / "V.npy", V)
    np.save(tmp_path / "other.npy", V + 1)
    out = tmp_path / "run"

    def fit(name, *more):
        code = ran(["fit", tmp_path / name, "--rank", "2", "--out", out, *more])
        return code, " ".join(capsys.readouterr().err.split())

    assert fit("V.npy", *LIMIT) == (0, "")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for name, more, words in (
        ("other.npy", LIMIT, "holds a run on other data"),
        ("V.npy", [*LIMIT, "--seed", "3"], "holds a run with --seed 0, not 3"),
        ("V.npy", [], "holds a run in blocks, of data beyond memory; choose another --out"),
    ):
        code, said = fit(name, *more)
        assert (code, words in said) == (1, True), said
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert fit("V.npy", "--fresh", "--max-iter", "3") == (0, "")
    assert not (out / "rank-2" / "W.npy").exists()
    code, said = fit("V.npy", *LIMIT)
    assert (code, "holds a run on data in memory; choose another --out" in said) == (1, True)
    assert (out / "rank-2" / "factors.npz").exists()
    assert fit("V.npy", *LIMIT, "--fresh") == (0, "")
    assert not (out / "rank-2" / "factors.npz").exists()


def test_the_components_serve_new_rows_and_there_is_no_report(V, tmp_path, capsys):
    np.save(tmp_path / "V.npy", V)
    np.save(tmp_path / "new.npy", V[:30])
    np.save(tmp_path / "narrow.npy", V[:30, 1:])
    model, out = tmp_path / "run", tmp_path / "W.csv"
    assert ran(["fit", tmp_path / "V.npy", "--rank", "2,3", "--out", model, *LIMIT]) == 0
    command = ["transform", tmp_path / "new.npy", "--model", model, "--out", out]
    capsys.readouterr()
    for argv, words in (
        (command, "has several ranks; choose one with --rank: 2, 3"),
        (["report", model], "of data beyond memory, which has no report"),
        ([command[0], tmp_path / "narrow.npy", *command[2:], "--rank", "3"], "has 149 columns"),
    ):
        assert ran(argv) == 1
        assert words in " ".join(capsys.readouterr().err.split())
    assert ran([*command, "--rank", "3"]) == 0
    H = np.load(model / "rank-3" / "H.npy")
    W = np.loadtxt(out, delimiter=",", skiprows=1, usecols=(1, 2, 3))
    exact = np.array([nnls(H, row)[0] for row in V[:30]])
    np.testing.assert_allclose(W, exact, rtol=1e-4, atol=1e-5 * exact.max())
    (model / "rank-3" / "H.npy").write_bytes(b"cut")
    assert ran([*command, "--rank", "3"]) == 1
    assert "H.npy is cut short or damaged" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_the_bar_tells_passes_as_they_are(V, tmp_path, index):
    sparse = csr_array(np.where(V > 6, V, 0))
    with h5py.File(tmp_path / "V.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", sparse.shape
        group["data"], group["indptr"] = sparse.data, sparse.indptr
        group["indices"] = sparse.indices.astype(index)
    with h5py.File(tmp_path / "V.h5") as file:
        source: Any = source_of(file["X"])
        B = blocks_of(source, "900kB")
        column, said, progress = _Passes(B), [], Progress()
        progress.add_task("reading")
        (task,) = progress.tasks
        said.append(column.render(task).plain)

        def tell(row):
            said.append(column.render(task).plain.rpartition(",")[0])

        with keep_passes(B, tmp_path / "kept", 0):
            factorize(B, 2, max_iter=3, tol=0, callback=tell)
        assert said[:1] == ["pass 1"]
        assert f"pass {B.record.passes} at 100%" == said[-1]
        again: Any = blocks_of(source, "900kB")
        column = _Passes(again)
        with keep_passes(again, tmp_path / "kept", 0):
            factorize(again, 2, max_iter=3, tol=0)
        assert not again.reader.traffic.n_rows  # as all was kept
        assert column.render(task).plain == f"pass {B.record.passes}"


def test_stores_are_fitted_in_blocks_and_say_so(V, tmp_path, capsys):
    with h5py.File(tmp_path / "V.h5", "w") as file:
        file["a"], file["b"] = V, V[:10]
    code = ran(["fit", tmp_path / "V.h5", "--rank", "3", "--key", "a", "--out", tmp_path / "run"])
    assert code == 0
    out = capsys.readouterr().out
    assert "400×150, h5py array" in out
    assert "passes" in out


def test_another_loss_is_fitted(V, tmp_path, capsys):
    np.save(tmp_path / "V.npy", V)
    argv = ["fit", tmp_path / "V.npy", "--rank", "3", "--out", tmp_path / "run", *LIMIT]
    assert ran([*argv, "--loss", "kullback-leibler"]) == 0
    assert "–" in capsys.readouterr().out
    assert (
        json.loads((tmp_path / "run" / "run.json").read_text())["results"][0]["explained"] is None
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--mask", "m.npy"], "--mask is for data in memory"),
        (["--row-labels", "nofile.txt"], "--row-labels is for data in memory"),
        (["--column-labels", "nofile.txt"], "--column-labels is for data in memory"),
        (["--rows-are", "line"], "--rows-are is for data in memory"),
        (["--columns-are", "line"], "--columns-are is for data in memory"),
        (["--resize", "2x2"], "--resize is for data in memory"),
        (["--no-header"], "--no-header is for data in memory"),
        (["--index"], "--no-index is for data in memory"),
        (["--loss", "select"], "--loss select is for data in memory"),
        (["--accelerator", "junk"], "junk"),
        (["--loss", "itakura-saito"], "β between 1 and 2"),
        (["--memory-limit", "much"], "--memory-limit is 'much'"),
        (["--memory-limit", "200kB"], "raise it, or choose a lower rank"),
    ],
)
def test_what_needs_memory_is_refused(V, tmp_path, capsys, argv, words):
    np.save(tmp_path / "V.npy", V)
    code = ran(["fit", tmp_path / "V.npy", "--out", tmp_path / "run", *LIMIT, *argv])
    assert code == 1
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_store_with_several_matrices_asks_for_one(V, tmp_path, capsys):
    with h5py.File(tmp_path / "V.h5", "w") as file:
        file["a"], file["b"] = V, V
    assert ran(["fit", tmp_path / "V.h5", "--rank", "3"]) == 1
    assert "choose one with --key" in " ".join(capsys.readouterr().err.split())


def test_the_outlook_is_how_fast_the_gradient_falls():
    outlook = Outlook(max_iter=50)
    rows = [Row(k, 0.0, torch.ones(()), passes, gap) for k, (passes, gap) in enumerate(
        [(2, 0.5), (3, 0.5), (4, 1000.0), (5, 100.0), (6, 10.0)]
    )]  # fmt: skip
    left = []
    for row in rows:
        outlook.watch(row)
        left.append(outlook.passes())
    assert left == [None, None, None, 1, 0]  # each gap is of the pass before: 1 after pass 6
    outlook.begin()
    assert outlook.passes() is None
    for row in rows[:3]:
        outlook.watch(row)
    outlook.watch(Row(9, 0.0, torch.ones(()), 5, 2000.0))
    assert outlook.passes() == 50 - 9  # it rises: all that are allowed


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0 s"), (41.3, "41 s"), (700.0, "12 min"), (9000.0, "2.5 h")]
)
def test_a_time_to_wait_in_words(seconds, said):
    assert wait(seconds) == said


def test_a_fit_tells_callbacks_how_far_the_gradient_is(V, tmp_path):
    np.save(tmp_path / "V.npy", V)
    rows = []
    stored = np.load(tmp_path / "V.npy", mmap_mode="r")
    result = factorize(stored, 3, memory_limit="900kB", callback=rows.append)
    assert result.status.name == "CONVERGED"
    gaps = [row.gap for row in rows if row.passes > 3]
    assert all(gap > 0 for gap in gaps)


def test_without_a_terminal_progress_is_a_line_after_each_pass(V, tmp_path, capsys):
    np.save(tmp_path / "V.npy", V)
    command = ["fit", tmp_path / "V.npy", "--rank", "3", "--out", tmp_path / "run", *LIMIT]
    assert ran([*command, "--progress", "--json"]) == 0
    told = capsys.readouterr()
    passes = json.loads(told.out)["results"][0]["passes"]
    lines = told.err.splitlines()
    assert len(lines) == passes - 1  # the first pass ends in the middle of the sketch
    assert all(line.startswith("rank 3  pass ") for line in lines)
    assert f"pass {passes} at 100%" in lines[-1]
    assert ran([*command, "--fresh"]) == 0
    assert not capsys.readouterr().err
