"""What scripts rely on when something is wrong: a sentence, an exit code, and JSON all the same."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from factormer.cli import main
from factormer.cli.app import print_json

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
        (["data.npy", "--mask", "nowhere.npy"], "there is no file nowhere.npy"),
        (["data.npy", "--mask", "small.npy"], r"mask has shape \(2, 2\)"),
        (["data.npy", "--missing", "ones"], "missing is 'ones'"),
        (["data.npy", "--columns-are", "5x5"], "an image of 5×5 has 25 pixels"),
        (["data.npy", "--max-iter", "-1"], "max_iter"),
        (["data.npy", "--tol", "-1"], "tol"),
        (["data.npy", "--time-limit", "-1"], "time_limit"),
        (["data.npy", "--seed", "-1"], "random_state is -1"),
        (["negative.npy"], "V has 16 entries below zero"),
        (["junk.npy"], "junk.npy is not an .npy file, whatever its name says"),
        (["data.npy", "--key", "V"], "--key says nothing about data.npy: it is for .npz"),
        (["data.npy", "--row-labels", "nowhere.txt"], "there is no file nowhere.txt; name a text"),
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
        assert "solver is 'magic'; choose one of" in err or "rank is '0'" in err
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

    monkeypatch.setattr(sys.modules["factormer.read"], "read", fail)
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
