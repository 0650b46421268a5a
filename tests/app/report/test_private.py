"""The page does not tell where files lie, and no labels if asked."""

from pathlib import Path

import numpy as np
import pytest

from factormer.app.cli import main
from factormer.app.report import write_report
from factormer.app.report.private import options_without_folders, without_folders
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.app.runs.shown import decide
from tests.app.runs import cases


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("factormer fit /home/ada/x.csv --rank 2..5", "factormer fit x.csv --rank 2..5"),
        ("factormer fit ../ada/x.csv --mask=/tmp/m.npy", "factormer fit x.csv --mask=m.npy"),
        (r"factormer fit 'C:\Users\Ada B\x.csv'", "factormer fit x.csv"),
        ("factormer fit ~/x.csv --out ~", "factormer fit x.csv --out '~'"),
        ("factormer fit x.csv --title 'a b/c' --regularize-h l1:0.1", None),
        ("factormer fit x.csv --title=a/b --rank 2", None),
        ("factormer fit /data/faces/ --resize 8x8", "factormer fit faces --resize 8x8"),
        ("not closed ' /home/ada/x", "not closed ''\"'\"'' x"),
        ("", None),
    ],
)
def test_commands_keep_the_names_of_files_alone(command, expected):
    assert without_folders(command) == (command if expected is None else expected)


def test_options_likewise():
    options = {"accelerator": "/home/ada/mine.safetensors", "tol": 1e-4, "init": "auto"}
    assert options_without_folders(options) == options | {"accelerator": "mine.safetensors"}


def test_a_page_holds_no_folder_of_this_computer(tmp_path, monkeypatch):
    place = tmp_path / "folder-of-ada"
    place.mkdir()
    np.savetxt(place / "data.csv", np.random.default_rng(0).random((9, 8)), delimiter=",")
    (place / "names.txt").write_text("\n".join(f"sample {i}" for i in range(9)))
    out = place / "run"
    arguments = [place / "data.csv", "--row-labels", place / "names.txt", "--out", out]
    assert main(["fit", *map(str, arguments), "--rank", "2"]) == 0
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "folder-of-ada" not in text
    assert str(Path.home()) not in text.replace("</", "")
    assert "data.csv --row-labels names.txt --out run --rank 2" in text


@pytest.mark.parametrize("kind", [cases.topics, cases.images])
def test_labels_are_left_out_for_good(tmp_path, kind):
    data = kind(name="secret") if kind is cases.topics else kind()
    fit(data, [2], FitOptions(max_iter=5), tmp_path)
    assert ("secret" in write_report(RunFolder(tmp_path)).read_text()) == (kind is cases.topics)
    decide(RunFolder(tmp_path), labels=False)
    fit(data, [2, 3], FitOptions(max_iter=5), tmp_path)
    text = write_report(RunFolder(tmp_path)).read_text()
    assert "secret" not in text
    assert "text 1" not in text or kind is cases.topics  # "text 1" is a number now
