"""Names of components and what else a person decided last in the run folder."""

from pathlib import Path

import pytest

from factormer.app.cli import main
from factormer.app.report.payload import payload
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.app.runs.shown import Shown, decide, shown
from tests.app.runs import cases


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    path = tmp_path / "run"
    fit(cases.topics(), [2, 3], FitOptions(max_iter=3), path)
    return RunFolder(path)


def test_names_last(folder, tmp_path, capsys):
    file = tmp_path / "names.csv"
    file.write_text('rank,component,name\n3,2,"Sport, games"\n2,1,Law\n\n3,1,\n', "utf-8")
    assert main(["report", str(folder.path), "--names", str(file)]) == 0
    assert main(["report", str(folder.path)]) == 0
    assert payload(folder)["names"] == {"2": {"1": "Law"}, "3": {"2": "Sport, games"}}
    kept = (folder.path / "names.csv").read_text("utf-8")
    assert kept == 'rank,component,name\n2,1,Law\n3,2,"Sport, games"\n'
    assert '"Sport, games"' in folder.report.read_text("utf-8")
    tables = [(folder.rank(3) / f"{name}.csv").read_text("utf-8") for name in "WH"]
    for table in tables:
        assert ',component 1,"component 2: Sport, games",component 3\n' in table
    file.write_text("rank,component,name\n2,1,Law\n", "utf-8")  # a name that is taken back
    assert main(["report", str(folder.path), "--names", str(file)]) == 0
    for name, table in zip("WH", tables, strict=True):
        head, rows = (folder.rank(3) / f"{name}.csv").read_text("utf-8").split("\n", 1)
        assert head.endswith(",component 1,component 2,component 3")
        assert rows == table.split("\n", 1)[1]
    fit(cases.topics(), [2, 3, 4], FitOptions(max_iter=3), folder.path)
    assert payload(folder)["names"]["2"] == {"1": "Law"}
    fit(cases.topics(), [2], FitOptions(max_iter=4), folder.path, fresh=True)
    assert payload(folder)["names"] == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "its first line must be rank,component,name"),
        ("component,name\n1,a", "its first line must be rank,component,name"),
        ("rank,component,name\n7,1,a", "line 2: rank is '7'; the run has 2, 3"),
        ("rank,component,name\n\n2,3,a", "line 3: component is '3'; it must be 1 to 2"),
        ("rank,component,name\n2,x,a", "component is 'x'; it must be 1 to 2"),
        ("rank,component,name\n2,1,a,b", "a comma outside quotes"),
        (f"rank,component,name\n2,1,{'a' * 61}", "longer than 60 characters"),
    ],
)
def test_wrong_names_are_refused_and_nothing_is_kept(folder, tmp_path, text, sentence, capsys):
    file = tmp_path / "mine.csv"
    file.write_text(text, "utf-8")
    assert main(["report", str(folder.path), "--names", str(file)]) == 1
    assert sentence in capsys.readouterr().err
    assert not (folder.path / "names.csv").exists()


def test_other_files_of_names_are_refused(folder, tmp_path, capsys):
    (tmp_path / "latin.csv").write_bytes("rank,component,name\n2,1,é".encode("latin-1"))
    assert main(["report", str(folder.path), "--names", str(tmp_path / "latin.csv")]) == 1
    assert "save it as UTF-8" in capsys.readouterr().err
    assert main(["report", str(folder.path), "--names", str(tmp_path / "nowhere.csv")]) == 1
    assert "nowhere.csv" in capsys.readouterr().err


def test_decisions_add_up(folder):
    assert shown(folder) == Shown()
    assert payload(folder)["swapped"] is False
    decide(folder, swap=True)
    decide(folder, labels=False)
    assert shown(folder) == Shown(labels=False, swap=True)
    assert payload(folder)["swapped"] is True
    decide(folder, labels=True)
    assert shown(folder) == Shown(labels=True, swap=True)


def test_samples_in_columns_are_known_by_their_name(tmp_path):
    fit(cases.counts(), [2], FitOptions(max_iter=3), tmp_path)  # genes × samples
    assert payload(RunFolder(tmp_path))["swapped"] is True
    decide(RunFolder(tmp_path), swap=False)
    assert payload(RunFolder(tmp_path))["swapped"] is False


def test_a_folder_of_somebody_else_is_left_alone(tmp_path, capsys):
    Path(tmp_path / "names.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"holds names\.csv, not part of a run"):
        fit(cases.topics(), [2], FitOptions(max_iter=3), tmp_path)
    assert main(["report", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().err
