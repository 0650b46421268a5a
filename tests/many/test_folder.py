"""A folder of a sweep: what is done stays, is not done again, and comes back bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import Results, Status, factorize_many
from factormer.data import locks
from factormer.many import folder as sweeps
from factormer.penalties import L1
from tests.data.test_files import fill_the_disk, make
from tests.many.test_factorize_many import problem
from tests.signals import interrupted_after

V = problem(20, 15, 3, 0)
ASKED: dict[str, Any] = {"ranks": range(2, 5), "n_init": 3, "max_iter": 30}


@pytest.fixture(autouse=True)
def pieces_of_two(monkeypatch) -> None:
    """Small ones, so that few jobs make several."""
    monkeypatch.setattr(sweeps, "_WORK", (0.0, 2.5 * V.size * 4 * 30))
    monkeypatch.setattr(sweeps, "_SHARES", 5)


@pytest.fixture
def computed(monkeypatch) -> list[int]:
    """How many jobs each piece still had to do."""
    seen: list[int] = []
    plain = sweeps.batches

    def watched(jobs: Any, *, until: float | None) -> Any:
        seen.append(len(jobs))
        return plain(jobs, until=until)

    monkeypatch.setattr(sweeps, "batches", watched)
    return seen


def assert_same(first: Any, second: Any) -> None:
    """Bit for bit, seconds included."""
    for name in ("W", "H"):
        a, b = getattr(first, name), getattr(second, name)
        assert type(a) is type(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert (first.rmse, first.loss, first.n_iter) == (second.rmse, second.loss, second.n_iter)
    assert first.status is second.status
    assert first.error.dtype == second.error.dtype
    for name in ("iteration", "rmse", "seconds", "loss"):
        np.testing.assert_array_equal(getattr(first.trace, name), getattr(second.trace, name))
    assert first.trace.rmse.dtype == second.trace.rmse.dtype
    assert first.plan == second.plan
    assert repr(first) == repr(second)


def assert_all_same(first: Results, second: Results) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert_same(a, b)
    for name, column in first.columns().items():
        np.testing.assert_array_equal(column, second.columns()[name])


def kinds() -> list[Any]:
    gaps = V.copy()
    gaps[3, 4] = np.nan
    sparse = scipy.sparse.random_array((20, 15), density=0.4, rng=np.random.default_rng(0))
    return [V, gaps, sparse, V.astype(np.float32), torch.from_numpy(V), np.ones((1, 1))]


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "kinds": (kinds(), {"ranks": 3}),
    "ranks": (V, {"ranks": [2, 3], "n_init": 2}),
    "stack": (np.stack([V, V + 1]), {"ranks": 2}),
    "tensors in single precision": ([torch.from_numpy(V).float()] * 2, {"ranks": 2}),
    "divergence": (V, {"ranks": 2, "n_init": 2, "loss": "kullback-leibler"}),
    "single, sparse": (scipy.sparse.csr_array(V.astype(np.float32)), {"ranks": [2]}),
    "penalty": (V, {"ranks": [2], "regularize_H": L1(0.1)}),
    "drawn": (np.round(9 * V), {"ranks": [2], "n_init": 3, "resample": "poisson"}),
    "no iterations": (V, {"ranks": [2], "max_iter": 0}),
    "exact": (np.ones((5, 4)), {"ranks": [2]}),
}


@pytest.mark.parametrize(("problems", "options"), CASES.values(), ids=CASES.keys())
def test_results_come_back_bit_for_bit(tmp_path, computed, problems, options):
    options = {"max_iter": 20} | options
    first = factorize_many(problems, folder=tmp_path, **options)
    done = len(computed)
    again = factorize_many(problems, folder=tmp_path, **options)
    assert len(computed) == done > 0
    assert_all_same(first, again)
    plain = factorize_many(problems, **options)
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_array_equal(a.W, b.W)
        np.testing.assert_array_equal(a.H, b.H)
        np.testing.assert_array_equal(a.trace.rmse, b.trace.rmse)


def test_a_sweep_is_cut_into_pieces_that_are_whole_files(tmp_path):
    factorize_many(V, folder=tmp_path / "new" / "sweep", **ASKED)
    names = sorted(path.name for path in (tmp_path / "new" / "sweep").iterdir())
    assert names[-1] == "sweep.json"
    assert names[:-1] == [f"piece-{k:05d}.npz" for k in range(len(names) - 1)]
    assert 4 <= len(names) - 1 <= 9


def test_pieces_have_bounds(monkeypatch):
    jobs = sweeps.Jobs([], *4 * [np.zeros(1000, int)], {}, [])  # pyright: ignore
    jobs.__dict__["sizes"] = (np.full(1000, 100), np.full(1000, 100), np.full(1000, 10))

    class Plan:
        class request:  # noqa: N801
            class limits:  # noqa: N801
                max_iter = 10**9

    monkeypatch.setattr(sweeps.Jobs, "plan", lambda self, index: Plan)
    for work, size in (((0.0, 1e9), 2**40), ((0.0, 1e20), 2**20), ((1e20, 1e20), 2**40)):
        monkeypatch.setattr(sweeps, "_WORK", work)
        monkeypatch.setattr(sweeps, "_BYTES", size)
        cuts = np.array(sweeps._cuts(jobs))
        lengths = np.diff(cuts)
        assert (cuts[0], cuts[-1]) == (0, 1000)
        assert lengths.min() >= 1
        assert (lengths * 1e7 <= work[1]).all()
        assert (lengths * 8 * (200 * 10 + 20_000) <= max(size, 8 * 22_000)).all()


def test_what_is_done_is_not_done_again(tmp_path, computed):
    whole = factorize_many(V, folder=tmp_path, **ASKED)
    pieces = sorted(tmp_path.glob("piece-*"))
    assert sum(computed) == 9
    computed.clear()
    for path in pieces[1::2]:
        path.unlink()
    again = factorize_many(V, folder=str(tmp_path), **ASKED)
    assert len(computed) == len(pieces[1::2])
    for a, b in zip(whole, again, strict=True):
        np.testing.assert_array_equal(a.W, b.W)


def test_results_as_they_come_are_kept(tmp_path, computed):
    run = factorize_many(V, folder=tmp_path, as_completed=True, **ASKED)
    first = next(run)
    run.close()  # pyright: ignore[reportAttributeAccessIssue]
    pairs = dict(factorize_many(V, folder=tmp_path, as_completed=True, **ASKED))
    assert sorted(pairs) == list(range(9))
    assert_same(pairs[first[0]], first[1])
    assert sum(computed) <= 9 + computed[0] - 1


def test_a_time_limit_keeps_what_is_done(tmp_path, monkeypatch, computed):
    monkeypatch.setattr(sweeps, "_WORK", (1e20, 1e20))  # one piece
    some = [problem(90, 80, 8, k) for k in range(100)]
    options = {"ranks": 8, "tol": 0, "max_iter": 2000, "folder": tmp_path}
    first = factorize_many(some, time_limit=0.5, **options)
    assert first.status is Status.TIME_LIMIT
    second = factorize_many(some, time_limit=1e-9, **options)
    whole = first.done & (first.columns()["status"] == "MAX_ITER")  # others are made again
    assert whole.any()
    np.testing.assert_array_equal(second.done, whole)
    for k in np.flatnonzero(whole):
        assert_same(first[int(k)], second[int(k)])


def test_what_time_cut_short_is_done_again(tmp_path, computed):
    large = problem(300, 250, 8, 0)
    options: dict[str, Any] = {"ranks": [8], "tol": 0, "max_iter": 3000, "folder": tmp_path}
    first = factorize_many(large, time_limit=0.05, **options)
    assert not first.done.all() or first[0].status is Status.TIME_LIMIT
    assert not list(tmp_path.glob("piece-*"))
    assert factorize_many(large, **options)[0].n_iter == 3000


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")
def test_ctrl_c_keeps_what_is_done(tmp_path):
    counts = np.round(99 * problem(60, 50, 3, 0))
    options: dict[str, Any] = {"ranks": [3], "n_init": 4000, "loss": 1, "tol": 0, "max_iter": 50}
    with interrupted_after(0.5):
        first = factorize_many(counts, folder=tmp_path, **options)
    assert first.status is Status.INTERRUPTED
    again = factorize_many(counts, folder=tmp_path, time_limit=1e-9, **options)
    whole = first.columns()["status"] == "MAX_ITER"
    np.testing.assert_array_equal(again.done, whole)
    assert not whole.all()


def test_seeds_that_nobody_chose_are_those_of_the_first_call(tmp_path):
    first = factorize_many(V, folder=tmp_path, random_state=None, **ASKED)
    (tmp_path / "piece-00001.npz").unlink()
    again = factorize_many(V, folder=tmp_path, random_state=None, **ASKED)
    np.testing.assert_array_equal(first.columns()["seed"], again.columns()["seed"])
    np.testing.assert_array_equal(first.rmse, again.rmse)


# What is refused


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "data": ({"problems": V + 1e-12}, "of other data"),
    "kind": ({"problems": V.astype(np.float32)}, "of other data"),
    "list": ({"problems": [V, V, V]}, "with problems 1, not 3"),
    "ranks": ({"ranks": [2, 3]}, r"with ranks \[2, 3, 4\], not \[2, 3\]"),
    "runs": ({"n_init": 4}, "with n_init 3, not 4"),
    "seed": ({"random_state": 1}, "with random_state 0, not 1"),
    "resample": ({"resample": "bootstrap"}, "with resample None, not 'bootstrap'"),
    "option": ({"max_iter": 31}, "with max_iter 30, not 31"),
    "loss": ({"loss": "kullback-leibler"}, "with loss 'frobenius', not 'kullback-leibler'"),
    "penalty": ({"regularize_W": L1(0.5)}, "with regularize_W None, not .'type': 'L1'"),
}


@pytest.mark.parametrize(("change", "sentence"), CHANGES.values(), ids=CHANGES.keys())
def test_another_sweep_is_refused_and_nothing_changes(tmp_path, change, sentence):
    asked: dict[str, Any] = {"problems": V} | ASKED
    factorize_many(**asked, folder=tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"holds a sweep {sentence}.*; choose another folder"):
        factorize_many(**(asked | change), folder=tmp_path)
    assert contents(tmp_path) == before


def test_defaults_may_be_spelled_out(tmp_path, computed):
    factorize_many(V, folder=tmp_path, **ASKED)
    computed.clear()
    factorize_many(V, folder=tmp_path, tol=1e-4, loss="frobenius", time_limit=99, **ASKED)
    assert not computed


def test_a_network_of_another_day_is_noticed(tmp_path):
    from factormer.many.asked import _option

    (tmp_path / "net").write_bytes(b"one")
    first = _option(tmp_path / "net", "init")
    (tmp_path / "net").write_bytes(b"two")
    assert _option(tmp_path / "net", "init") != first


NO_SWEEPS = ["", "{", "[]", '{"asked": {}}', '{"asked": 1, "cuts": [0, 9]}']
NO_SWEEPS += ['{"asked": {}, "cuts": [3, 1]}', '{"asked": {}, "cuts": ["a"]}']


@pytest.mark.parametrize("text", NO_SWEEPS)
def test_a_description_that_is_none_is_told(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(ValueError, match=r"sweep\.json is not the description of a sweep"):
        factorize_many(V, folder=tmp_path, **ASKED)
    assert (tmp_path / "sweep.json").read_text() == text


def test_cuts_of_other_jobs_are_told(tmp_path):
    factorize_many(V, folder=tmp_path, **ASKED)
    told = json.loads((tmp_path / "sweep.json").read_text())
    told["cuts"].append(10)
    (tmp_path / "sweep.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"sweep\.json is not .* \(it is of 10 jobs, not 9\)"):
        factorize_many(V, folder=tmp_path, **ASKED)


def test_a_format_of_another_version_is_refused(tmp_path):
    factorize_many(V, folder=tmp_path, **ASKED)
    told = json.loads((tmp_path / "sweep.json").read_text())
    told["asked"]["format"] = 99
    (tmp_path / "sweep.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match="holds a sweep with format 99, not 1"):
        factorize_many(V, folder=tmp_path, **ASKED)


def test_a_folder_is_a_path():
    with pytest.raises(ValueError, match=r"folder is ''; it must be the path of a folder"):
        factorize_many(V, folder="", **ASKED)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file cannot be written"):
        factorize_many(V, folder=tmp_path / "file", **ASKED)


# Damage


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flipped(data: bytes) -> bytes:
    at = data.index(b"W.npy") + 200  # among its numbers
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def resaved(path: Path, **changed: Any) -> None:
    with np.load(path) as file:
        arrays = dict(file) | changed
    np.savez(path, **arrays)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda p: p.write_bytes(p.read_bytes()[:-60]),
    "short": lambda p: p.write_bytes(p.read_bytes()[:90]),
    "empty": lambda p: p.write_bytes(b""),
    "junk": lambda p: p.write_bytes(b"no archive"),
    "a bit": lambda p: p.write_bytes(flipped(p.read_bytes())),
    "other numbers": lambda p: resaved(p, error=np.zeros(2)),
    "no numbers": lambda p: np.savez(p, W=np.ones(3)),
    "objects": lambda p: np.savez(p, index=np.array([{}], dtype=object), allow_pickle=True),
    "that of others": lambda p: p.write_bytes((p.parent / "piece-00001.npz").read_bytes()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_piece_is_made_again(tmp_path, computed, caplog, damage):
    whole = factorize_many(V, folder=tmp_path, **ASKED)
    damage(tmp_path / "piece-00000.npz")
    computed.clear()
    again = factorize_many(V, folder=tmp_path, **ASKED)
    assert len(computed) == 1
    assert "piece-00000.npz is damaged" in caplog.text
    for a, b in zip(whole, again, strict=True):
        np.testing.assert_array_equal(a.W, b.W)
    computed.clear()
    assert_all_same(again, factorize_many(V, folder=tmp_path, **ASKED))
    assert not computed


def test_a_piece_of_another_sweep_does_not_count(tmp_path, computed):
    for name, data in (("ours", V), ("theirs", V + 1)):
        factorize_many(data, folder=tmp_path / name, **ASKED)
    ours, theirs = (tmp_path / name / "piece-00000.npz" for name in ("ours", "theirs"))
    ours.write_bytes(theirs.read_bytes())
    computed.clear()
    factorize_many(V, folder=tmp_path / "ours", **ASKED)
    assert len(computed) == 1


def test_leavings_of_a_killed_process_go(tmp_path):
    tmp_path.joinpath(".piece-00000.npz.0123abcd.new").write_bytes(b"half")
    tmp_path.joinpath(".sweep.json.0123abcd.new").write_bytes(b"half")
    factorize_many(V, folder=tmp_path, **ASKED)
    assert not list(tmp_path.glob(".*"))


def test_a_disk_that_fills_at_any_write_costs_nothing_old(tmp_path, monkeypatch):
    done: dict[str, bytes] = {}
    for _ in range(9):
        if len(list(tmp_path.glob("piece-*"))) == 4:
            break
        with monkeypatch.context() as patch:
            written = fill_the_disk(patch, 1)
            with pytest.raises(OSError, match="No space left on device") as told:
                factorize_many(V, folder=tmp_path, **ASKED)
        assert written[1].split(".")[1] in str(told.value)
        now = contents(tmp_path)
        assert {name: now[name] for name in done} == done
        assert len(now) == len(done) + 1  # one more was written, and nothing lies about
        done = now
    assert len(done) >= 4
    whole = factorize_many(V, **ASKED)
    for a, b in zip(whole, factorize_many(V, folder=tmp_path, **ASKED), strict=True):
        np.testing.assert_array_equal(a.W, b.W)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes in the file system")
@pytest.mark.parametrize("kind", ["symbolic link", "pipe", "device", "folder"])
@pytest.mark.parametrize("name", ["sweep.json", "piece-00001.npz"])
def test_what_is_no_plain_file_is_refused_and_kept(tmp_path, name, kind):
    path = tmp_path / "sweep" / name
    path.parent.mkdir()
    make(kind, path)
    before = path.lstat()
    with pytest.raises(OSError, match=rf"{name} cannot be written \(it is a {kind}"):
        factorize_many(V, folder=path.parent, **ASKED)
    assert path.lstat() == before


def test_without_locks_of_the_kernel(tmp_path, monkeypatch, computed):
    monkeypatch.setattr(locks, "fcntl", None)
    whole = factorize_many(V, folder=tmp_path, **ASKED)
    (tmp_path / "piece-00001.npz").unlink()
    dead = tmp_path / ".piece-00001.lock.0123"  # of a process that was killed
    dead.write_text(f"{2**22 + 1} {locks.platform.node()}")
    computed.clear()
    again = factorize_many(V, folder=tmp_path, **ASKED)
    assert len(computed) == 1
    np.testing.assert_array_equal(whole.rmse, again.rmse)
    assert not list(tmp_path.glob(".*"))


def test_what_another_does_is_waited_for(tmp_path, monkeypatch, computed):
    """Another process has a piece while we come, and ends it then."""
    whole = factorize_many(V, folder=tmp_path, **ASKED)
    piece = tmp_path / "piece-00001.npz"
    written = piece.read_bytes()
    piece.unlink()
    theirs = locks.Lock(tmp_path / ".piece-00001.lock")
    assert theirs.take()
    computed.clear()
    looked: list[float] = []

    def wait(seconds: float) -> None:
        looked.append(seconds)
        if len(looked) == 3:
            piece.write_bytes(written)

    monkeypatch.setattr(sweeps.time, "sleep", wait)
    assert_all_same(whole, factorize_many(V, folder=tmp_path, **ASKED))
    theirs.release()
    assert (len(looked), computed) == (3, [])


# Kills, and several processes


def told(folder: Path, kills: int, *kinds: str) -> dict[str, Any]:
    """What tests/many/killed.py saw."""
    script, source = Path(__file__).with_name("killed.py"), Path(sweeps.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(kills), *kinds],
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


KILLS = [
    pytest.param(3, "kernel", "flags"),
    pytest.param(20, "kernel", "kernel", marks=pytest.mark.slow),
    pytest.param(20, "flags", "flags", marks=pytest.mark.slow),
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("kills", "alone", "together"), KILLS)
def test_kills_at_random_and_several_at_once_change_nothing(tmp_path, kills, alone, together):
    seen = told(tmp_path, kills, alone, together)
    assert seen["kills"]["hits"] == kills
    assert seen["kills"]["same"]
    assert seen["kills"]["left"] == []
    assert seen["kills"]["pieces"] + seen["kills"]["ended"] > 0
    for name, workers in (("together", 3), ("killed", 2)):  # three, of which one was killed
        assert seen[name]["same"] == workers
        assert seen[name]["other"] == 0
        assert seen[name]["jobs"] == seen[name]["different"] == 25  # none was done twice


def test_seeds_that_do_not_follow_each_other_are_kept(tmp_path):
    V = np.random.default_rng(0).random((12, 10))
    seeds = [5, 3, 8]
    first = factorize_many(V, 2, n_init=3, random_state=seeds, folder=tmp_path / "sweep")
    again = factorize_many(V, 2, n_init=3, random_state=seeds, folder=tmp_path / "sweep")
    assert again.columns()["seed"].tolist() == seeds
    np.testing.assert_array_equal(first.rmse, again.rmse)
    with pytest.raises(ValueError, match="random_state"):
        factorize_many(V, 2, n_init=3, random_state=[5, 3, 9], folder=tmp_path / "sweep")
    drawn = factorize_many(V, 2, n_init=3, random_state=None, folder=tmp_path / "sweep")
    assert drawn.columns()["seed"].tolist() == seeds
