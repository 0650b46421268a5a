"""What scripts rely on when something is wrong: a sentence, an exit code, and JSON all the same."""

import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from factormer.app.cli import main
from factormer.app.cli.app import print_json

pytestmark = pytest.mark.usefixtures("data_files")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.csv"], "there is no file nowhere.csv"),
        (["data.npy", "--loss", "absolute"], "loss is 'absolute'; choose 'frobenius'"),
        (["data.npy", "--solver", "magic"], "solver is 'magic'"),
        (["data.npy", "--accelerator", "magic"], "accelerator is 'magic'"),
        (["data.npy", "--device", "gpu"], "device is 'gpu', which is not on this machine"),
        (["data.npy", "--regularize-w", "l1"], "the constraint 'l1' lacks a value"),
        (
            ["data.npy", "--regularize-w", "l1:inf"],
            "the constraint 'l1:inf' has a value that is inf",
        ),
        (
            ["data.npy", "--regularize-w", "l1:1_0"],
            "the constraint 'l1:1_0' has a value that is no",
        ),
        (["data.npy", "--loss", "1e9"], r"loss is 1000000000.0; choose .* from -100 to 100"),
        (["data.npy", "--rank", "1..100000000"], "rank is '1..100000000', which is more than 1000"),
        (["data.npy", "--rank", "1" + "0" * 20], "rank is '10{20}'; it must be a number above 0"),
        (["data.npy", "--rank", "9" * 5000], "rank is '9{40}…'; it must be a number above 0"),
        (["data.npy", "--columns-are", f"{'9' * 5000}x1"], "columns cannot be drawn as"),
        (["data.npy", "--device", "meta"], "device is 'meta', which is not on this machine"),
        (
            ["pictures", "--resize", "100000x100000"],
            "the size to resize to is 100000×100000; it may",
        ),
        (["pictures", "--resize", f"{'9' * 5000}x1"], "the size to resize to is '9{40}…'; it must"),
        (["pipe.csv"], "pipe.csv is a pipe or a device; save its output"),
        (["data.npy", "--mask", "nowhere.npy"], "there is no file nowhere.npy"),
        (["data.npy", "--mask", "small.npy"], r"mask has shape \(2, 2\)"),
        (["data.npy", "--missing", "ones"], "missing is 'ones'"),
        (["data.npy", "--columns-are", "5x5"], "an image of 5×5 has 25 pixels"),
        (["data.npy", "--max-iter", "-1"], "max_iter"),
        (["data.npy", "--tol", "-1"], "tol"),
        (["data.npy", "--time-limit", "-1"], "time_limit"),
        (["data.npy", "--seed", "-1"], "random_state is -1"),
        (["negative.npy"], "V has 16 entries below zero"),
        (["junk.npy"], "junk.npy is not an .npy file, despite its name"),
        (["data.npy", "--key", "V"], "--key does not apply to data.npy: it is for .npz"),
        (["data.npy", "--row-labels", "nowhere.txt"], "there is no file nowhere.txt; choose one"),
        (["data.npy", "--out", "data.npy"], r"data.npy cannot hold a run \(File exists\)"),
        (["data.npy", "--weights", "nowhere.npy"], "there is no file nowhere.npy"),
        (["data.npy", "--weights", "negative.npy"], r"weights has shape \(4, 4\)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_error_is_a_sentence_on_stderr_and_1(arguments, sentence, capsys):
    np.save("small.npy", np.ones((2, 2)))
    np.save("negative.npy", -np.ones((4, 4)))
    Path("junk.npy").write_text("no array")
    Path("pictures").mkdir()
    os.mkfifo("pipe.csv")
    assert main(["fit", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("factormer: ")
    assert captured.err.count("\n") == 1
    assert main(["fit", *arguments, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told == {"schema": 1, "error": captured.err[len("factormer: ") : -1], "exit_code": 1}
    with pytest.raises((ValueError, OSError), match=sentence):
        main(["--debug", "fit", *arguments])


def test_a_wrong_option_neither_discards_a_run_nor_hides_behind_it(capsys):
    command = ["fit", "data.npy", "--rank", "2", "--out", "run"]
    assert main(command) == 0
    before = Path("run/rank-2/result.json").read_text()
    for wrong in (["--solver", "magic"], ["--solver", "magic", "--fresh"], ["--rank", "0"]):
        capsys.readouterr()
        assert main([*command, *wrong]) == 1
        err = capsys.readouterr().err
        assert "leave --solver out, or choose one of auto" in err or "rank is '0'" in err
        assert Path("run/rank-2/result.json").read_text() == before


def test_coordinate_descent_goes_by_its_name(capsys):
    assert main(["fit", "data.npy", "--rank", "2", "--solver", "cd"]) == 0


def test_report_of_no_run_is_an_error(capsys):
    assert main(["report", "nowhere"]) == 1
    assert "nowhere holds no run" in capsys.readouterr().err


def test_bench_refuses_what_scikit_learn_cannot_take(capsys):
    np.save("holes.npy", np.array([[1.0, np.nan], [2.0, 3.0]]))
    assert main(["bench", "holes.npy"]) == 1
    assert "scikit-learn refuses" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["fit"], ["fit", "data.npy", "--max-iter", "many"], ["report"], ["bench", "--x"]]
)
def test_wrong_usage_ends_with_2(arguments, capsys):
    assert main(arguments) == 2
    assert "--help" in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            RuntimeError("can't allocate memory: you tried to allocate 3200000000 bytes. Error 12"),
            1,
            "there is not enough memory for this (3.2 GB); choose less data or rank",
        ),
        (MemoryError("Unable to allocate 9 TiB"), 1, "there is not enough memory for this"),
        (PermissionError(13, "Permission denied", "x.npy"), 1, "x.npy cannot be used: permission"),
        (OSError(28, "No space left on device"), 1, "[Errno 28] No space left on device"),
        (RuntimeError("odd\nindeed"), 3, "an error of the program itself, RuntimeError: odd inde"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_whatever_goes_wrong_has_its_exit_code(error, code, sentence, capsys, monkeypatch):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(sys.modules["factormer.app.read"], "read", fail)
    assert main(["fit", "data.npy", "--json"]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.err.startswith(f"factormer: {sentence}" if sentence else "")
    told = json.loads(captured.out)
    assert told["exit_code"] == code
    assert sentence in told["error"]


def test_json_holds_no_number_that_is_none(capsys):
    print_json({"a": float("nan"), "b": [1.0, float("inf")]})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.0, None]}


# Folders and disks


@pytest.mark.parametrize(
    "name",
    ["run.json", "axes.json", "data.npz"]
    + [f"rank-2/{name}" for name in ("factors.npz", "views.npz", "result.json", "trace.csv")],
)
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"half", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_run_is_told_by_its_file(name, content, capsys):
    if not Path("run").exists():
        assert main(["fit", "data.npy", "--rank", "2", "--max-iter", "2", "--out", "run"]) == 0
    path = Path("run") / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3] if content == b"half" else content or b"")
    if content is None:
        path.unlink()
    capsys.readouterr()
    code = main(["report", "run"])
    err = capsys.readouterr().err
    if content is None and name in ("data.npz", "rank-2/result.json"):
        assert code == (0 if name == "data.npz" else 1)
        return
    assert code == 1
    assert err.startswith("factormer: run")
    assert err.count("\n") == 1
    assert "pickle" not in err
    assert str(path) in err or "holds no run" in err


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("result.json", '"rank": 2', '"rank": "two"'),
        ("result.json", '"rank": 2', '"rank": 3'),
        ("result.json", '"rmse": ', '"rmse": "x", "_": '),
        ("result.json", '"shares"', '"parts"'),
        ("trace.csv", "iteration,seconds,rmse,objective\n", "iteration\n1\n"),
    ],
)
def test_a_tampered_result_is_told_too(name, old, new, capsys):
    assert main(["fit", "data.npy", "--rank", "2", "--max-iter", "2", "--out", "run"]) == 0
    path = Path("run/rank-2") / name
    path.write_text(path.read_text().replace(old, new))
    assert main(["report", "run"]) == 1
    assert f"{path} " in capsys.readouterr().err


def test_factors_of_another_fit_are_told(capsys):
    assert main(["fit", "data.npy", "--rank", "2", "--max-iter", "2", "--out", "run"]) == 0
    np.savez("run/rank-2/factors.npz", W=np.ones((3, 1)))
    assert main(["report", "run"]) == 1
    assert "factors.npz has no array 'H' of numbers" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run.json", "factors.npz", "W.csv", "result.json", "report.html"])
def test_a_full_disk_is_told_with_the_file(name, capsys, monkeypatch):
    replace = os.replace

    def full(source, target):
        if Path(target).name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    assert main(["fit", "data.npy", "--rank", "2", "--max-iter", "2", "--out", "run"]) == 1
    err = capsys.readouterr().err
    assert f"{name} cannot be written (No space left on device)" in err
    assert err.count("\n") == 1
