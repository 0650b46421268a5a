"""A run folder that was tampered with, cut, full, or wanted by two, gives a sentence."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factormer.app.report import write_report
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.app.runs.folder import write_arrays
from tests.app.runs import cases
from tests.data.test_files import fill_the_disk

OPTIONS = FitOptions(max_iter=3, tol=0.0)


@pytest.fixture
def run(tmp_path) -> Path:
    fit(cases.images(), [2], OPTIONS, tmp_path)
    return tmp_path


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no key": ("result.json", lambda p: rewritten(p, lambda d: d.pop("rmse"))),
    "no keys": ("result.json", lambda p: p.write_text("{}")),
    "a list": ("result.json", lambda p: p.write_text("[1, 2]")),
    "deep": ("result.json", lambda p: p.write_text("[" * 100_000)),
    "text for a number": ("result.json", lambda p: rewritten(p, lambda d: d.update(rmse="a"))),
    "a number for text": ("result.json", lambda p: rewritten(p, lambda d: d.update(status=3))),
    "other rank": ("result.json", lambda p: rewritten(p, lambda d: d.update(rank=3))),
    "more": ("result.json", lambda p: rewritten(p, lambda d: d.update(more=3))),
    "cut factors": ("factors.npz", lambda p: p.write_bytes(p.read_bytes()[:-60])),
    "short factors": ("factors.npz", lambda p: p.write_bytes(p.read_bytes()[:90])),
    "empty factors": ("factors.npz", lambda p: p.write_bytes(b"")),
    "junk": ("factors.npz", lambda p: p.write_bytes(b"no archive")),
    "objects": (
        "factors.npz",
        lambda p: np.savez(p, W=np.array([{}], dtype=object), H=np.ones(2), allow_pickle=True),
    ),
    "no H": ("factors.npz", lambda p: np.savez(p, W=np.ones((40, 2)))),
    "rank of W": ("factors.npz", lambda p: np.savez(p, W=np.ones((40, 3)), H=np.ones((36, 2)))),
    "rows of W": ("factors.npz", lambda p: np.savez(p, W=np.ones((4, 2)), H=np.ones((36, 2)))),
    "NaN": ("factors.npz", lambda p: np.savez(p, W=np.full((40, 2), np.nan), H=np.ones((36, 2)))),
    "no views": ("views.npz", lambda p: np.savez(p, V_blocks=np.ones((2, 2)))),
    "views gone": ("views.npz", lambda p: p.unlink()),
    "no table": ("trace.csv", lambda p: p.write_text("a\nb\n")),
    "no rows": ("trace.csv", lambda p: p.write_text("0,0\n1,2\n")),
    "no run": ("../run.json", lambda p: p.write_text("{}")),
    "no data": ("../run.json", lambda p: rewritten(p, lambda d: d.update(data={}))),
    "no axes": ("../axes.json", lambda p: p.write_text("{}")),
    "axes gone": ("../axes.json", lambda p: p.unlink()),
    "size of an axis": (
        "../axes.json",
        lambda p: rewritten(p, lambda d: d["rows"].update(size="many")),
    ),
    "labels": ("../axes.json", lambda p: rewritten(p, lambda d: d["rows"].update(labels=["a"]))),
    "no bound": ("../data.npz", lambda p: np.savez(p, other=np.ones(3))),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGES.values(), ids=DAMAGES.keys())
def test_every_damage_to_a_run_is_told_with_the_file(run, name, damage):
    path = (run / "rank-2" / name).resolve()
    damage(path)
    with pytest.raises(ValueError, match=rf"{path.name} .*; fit again, with --fr") as told:
        write_report(RunFolder(run))
    assert "pickle" not in str(told.value)
    fit(cases.images(), [2], OPTIONS, run, fresh=True)  # which the sentence advises
    write_report(RunFolder(run))


def test_a_point_that_is_damaged_is_told(run):
    point = run / "rank-3.point.npz"
    write_arrays(point, W=np.ones((40, 3)), H=np.ones((36, 3)), trace=np.zeros((0, 4)))
    with pytest.raises(ValueError, match=r"rank-3\.point\.npz holds a trace of shape \(0, 4\)"):
        fit(cases.images(), [3], OPTIONS, run)
    point.write_bytes(point.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"rank-3\.point\.npz is cut short or damaged"):
        fit(cases.images(), [3], OPTIONS, run)


def test_numbers_without_a_word_in_json_come_back(run):
    rewritten(run / "rank-2" / "result.json", lambda d: d.update(objective=None))
    [result] = RunFolder(run).results()
    assert np.isnan(result.objective)
    write_report(RunFolder(run))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_disk_that_fills_at_any_write_costs_nothing_old(run, monkeypatch):
    fit(cases.images(), [3], OPTIONS, run)
    result = RunFolder(run).results()[1]
    (run / "rank-3" / "result.json").write_text(
        (run / "rank-3" / "result.json").read_text().replace(result.status, "INTERRUPTED")
    )
    before = contents(run)
    for at in range(9):  # the probe, both descriptions, and the six files of a rank
        with monkeypatch.context() as patch:
            written = fill_the_disk(patch, at)
            with pytest.raises(OSError, match="No space left on device") as told:
                fit(cases.images(), [3], OPTIONS, run)
        assert written[at].split(".")[1] in str(told.value)
        assert "what was there before is unchanged" in str(told.value)
        now = contents(run)
        assert now.pop("run.json").startswith(b"{")  # whole, though written anew with its time
        assert now == {name: held for name, held in before.items() if name != "run.json"}
    fit(cases.images(), [3], OPTIONS, run)
    assert RunFolder(run).results()[1].is_finished


def test_a_full_disk_leaves_the_point_that_was_kept(run, monkeypatch):
    folder = RunFolder(run)
    parts = np.ones((40, 3)), np.ones((36, 3)), np.ones((1, 4))
    folder.keep_point(3, *parts)
    before = contents(run)
    fill_the_disk(monkeypatch, 0)
    with pytest.raises(OSError, match=r"rank-3\.point\.npz cannot be written \(No space left"):
        folder.keep_point(3, *parts)
    assert contents(run) == before


@pytest.mark.parametrize("name", ["run.json", "data.npz", "report.html", "rank-2", "rank-3"])
def test_links_in_a_run_are_refused_and_kept(run, name, tmp_path_factory):
    aside = tmp_path_factory.mktemp("aside")
    place = run / name
    if place.exists():
        place.rename(aside / name)
    else:
        (aside / name).write_text("mine")
    place.symlink_to(aside / name)
    before = contents(aside)
    for fresh in (False, True):
        with pytest.raises(OSError, match=rf"{name} cannot be written \(it is a symbolic link"):
            fit(cases.images(), [2, 3], OPTIONS, run, fresh=fresh)
    assert contents(aside) == before
    assert place.is_symlink()


def test_a_rank_that_was_being_replaced_comes_back(run):
    before = RunFolder(run).results()
    (run / "rank-2").rename(run / ".rank-2.old")
    begun: list[int] = []
    assert fit(cases.images(), [2], OPTIONS, run, begin=begun.append) == before
    assert not begun


HOLD = """
import sys
from pathlib import Path
from factormer.app.runs import RunFolder
with RunFolder(Path(sys.argv[1])).held():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_are_kept_apart(run):
    command = [sys.executable, "-c", HOLD, str(run)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        before = contents(run)
        with pytest.raises(ValueError, match="another run is using"):
            fit(cases.images(), [2, 3], OPTIONS, run, fresh=True)
        assert contents(run) == before
        other.kill()
        other.wait()
        assert fit(cases.images(), [2, 3], OPTIONS, run)  # a killed process holds nothing
        assert other.stdin is not None


def test_what_another_run_did_before_the_lock_came_counts(tmp_path, monkeypatch):
    data, held = cases.images(), RunFolder.held

    def later(self: RunFolder) -> Any:
        monkeypatch.setattr(RunFolder, "held", held)
        fit(data, [2], FitOptions(max_iter=4, tol=0.0), tmp_path)
        return held(self)

    monkeypatch.setattr(RunFolder, "held", later)
    with pytest.raises(ValueError, match="a run with max_iter 4, not 3"):
        fit(data, [3], OPTIONS, tmp_path)
