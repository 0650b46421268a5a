"""Passes that are kept: a run that was cut short goes on, and ends as if it had not been."""

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factormer import NMF, factorize
from factormer.data import journal
from factormer.data.outofcore import blocks_of
from factormer.data.sources import Source, source_of

M, N, R = 400, 150, 4
LIMIT = "900kB"
OPTIONS: Any = {"tol": 0, "max_iter": 25, "memory_limit": LIMIT}


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    rng = np.random.default_rng(1)
    W, H = rng.exponential(size=(M, R)), rng.exponential(size=(N, R))
    path = tmp_path_factory.mktemp("data") / "V.npy"
    np.save(path, W @ H.T + rng.random((M, N)))
    return path


def stored(path: Path) -> np.ndarray:
    return np.load(path, mmap_mode="r")


def blocks(path: Path) -> Any:
    source: Any = source_of(stored(path))
    return blocks_of(source, LIMIT)


def passes(folder: Path) -> list[Path]:
    return sorted(folder.glob("pass-*.npz"))


def stop_at(number: int):
    def stop(row):
        if row.passes >= number:
            raise KeyboardInterrupt

    return stop


def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(file, tmp_path):
    whole = factorize(stored(file), R, **OPTIONS)
    n_passes = int(whole.trace.passes[-1])
    first = factorize(stored(file), R, folder=tmp_path / "run", callback=stop_at(4), **OPTIONS)
    assert first.status.name == "INTERRUPTED"
    assert len(passes(tmp_path / "run")) == 4 < n_passes
    B = blocks(file)
    again = factorize(B, R, folder=tmp_path / "run", tol=0, max_iter=25)
    np.testing.assert_allclose(again.W, whole.W, rtol=1e-12)
    np.testing.assert_allclose(again.H, whole.H, rtol=1e-12)
    np.testing.assert_array_equal(again.trace.passes, whole.trace.passes)
    np.testing.assert_allclose(again.trace.rmse, whole.trace.rmse, rtol=1e-12)
    read = B.reader.traffic.n_bytes / (M * N * 8)
    assert read == pytest.approx(n_passes - 4)


KILLED = """
import os, signal, sys
import numpy as np
from factormer import factorize

def kill(row):
    if row.passes >= 4:
        os.kill(os.getpid(), signal.SIGKILL)

V = np.load(sys.argv[1], mmap_mode="r")
options = {"tol": 0, "max_iter": 25, "memory_limit": "900kB"}
factorize(V, 4, folder=sys.argv[2], callback=kill, **options)
"""


def test_a_process_that_was_killed_is_continued(file, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(file), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    kept = {path.name: path.stat().st_mtime_ns for path in passes(folder)}
    assert len(kept) == 4
    again = factorize(stored(file), R, folder=folder, **OPTIONS)
    whole = factorize(stored(file), R, **OPTIONS)
    np.testing.assert_allclose(again.W, whole.W, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(again.trace.passes, whole.trace.passes)


def test_the_same_call_again_reads_nothing_more(file, tmp_path):
    first = NMF(R, memory_limit=LIMIT, folder=tmp_path).fit(stored(file))
    kept = [(path.name, path.stat().st_mtime_ns) for path in passes(tmp_path)]
    again = NMF(R, memory_limit=LIMIT, folder=tmp_path).fit(stored(file))  # with the same seed
    np.testing.assert_array_equal(again.components_, first.components_)
    assert [(path.name, path.stat().st_mtime_ns) for path in passes(tmp_path)] == kept
    assert len(kept) == first.trace_.passes[-1]


def test_a_damaged_pass_is_made_again(file, tmp_path):
    whole = factorize(stored(file), R, folder=tmp_path, **OPTIONS)
    first, second, *_ = passes(tmp_path)
    first.write_bytes(first.read_bytes()[:-200])
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 255
    second.write_bytes(content)
    (tmp_path / f".pass-{'0a' * 12}.npz.01234567.new").write_bytes(b"left by a kill")
    again = factorize(stored(file), R, folder=tmp_path, **OPTIONS)
    np.testing.assert_allclose(again.W, whole.W, rtol=1e-12)
    assert not list(tmp_path.glob(".*.new"))


def test_passes_over_other_data_are_refused(file, tmp_path):
    factorize(stored(file), R, folder=tmp_path, callback=stop_at(3), **OPTIONS)
    np.save(tmp_path / "other.npy", 2 * stored(file))
    with pytest.raises(ValueError, match=r"keeps passes over other data \(400×150, float64"):
        factorize(stored(tmp_path / "other.npy"), R, folder=tmp_path, **OPTIONS)
    (tmp_path / "about.json").write_text(json.dumps({"data": 1}))
    with pytest.raises(ValueError, match=r"about.json is not of passes over V"):
        factorize(stored(file), R, folder=tmp_path, **OPTIONS)
    words = "folder is 3; it must be the path"
    with pytest.raises(ValueError, match=words), journal.keep_passes(blocks(file), 3, 0):
        pass


@pytest.mark.parametrize("rows", [slice(100, None), slice(-1, None), slice(200, 201)])
def test_passes_over_data_that_was_changed_are_refused(file, tmp_path, rows):
    V = np.array(stored(file))
    np.save(tmp_path / "V.npy", V)
    options = OPTIONS | {"folder": tmp_path / "run"}
    factorize(stored(tmp_path / "V.npy"), R, **options)
    V[rows] += 1
    np.save(tmp_path / "V.npy", V)
    os.utime(tmp_path / "V.npy", (1e9, 1e9))  # clocks of file systems may be rough
    with pytest.raises(ValueError, match="keeps passes over other data"):
        factorize(stored(tmp_path / "V.npy"), R, **options)


def test_data_is_known_by_rows_from_all_over_it_where_no_file_tells(file):
    V = np.array(stored(file))

    def known(V: np.ndarray, **store: Any) -> Any:
        source: Any = source_of(stored(file))
        parts = {**vars(source), "read": lambda a, b: V[a:b], "file": None, "take": None, **store}
        return journal.about(blocks_of(type(source)(**parts), LIMIT))

    for store in ({}, {"step": 30}, {"ends": tuple(range(0, M + 1, 40))}):
        assert known(V, **store) == known(V, **store)
        for rows in (slice(1), slice(100, None), slice(-1, None), slice(190, 255)):
            other = V.copy()
            other[rows] += 1
            assert known(other, **store) != known(V, **store)


def test_chunks_of_dask_are_known_again(file):
    da = pytest.importorskip("dask.array")
    from factormer.data.dask import distributed_of

    V = np.array(stored(file))

    def known(V: np.ndarray) -> Any:
        return journal.about(distributed_of(da.from_array(V, chunks=(50, N))))

    assert known(V) == known(V)
    for row in (0, M - 1):
        other = V.copy()
        other[row] += 1
        assert known(other) != known(V)


def test_what_data_is_known_by_keeps_within_the_memory_limit():
    m, n, read = 60, 200_000, []

    def rows(a: int, b: int) -> np.ndarray:
        read.append((b - a) * n * 8)
        return np.broadcast_to(1.0, (b - a, n))

    source = Source(rows, (m, n), np.dtype(float), "test", float(m) * n)
    journal.about(blocks_of(source, "10MB"))
    assert max(read) <= 10e6 / 3
    assert sum(read) <= m * n * 8 / 4


def test_other_files_of_the_folder_stay(file, tmp_path):
    for name in (".thesis.new", ".pass-x.npz.new", "notes.txt"):
        (tmp_path / name).write_text("mine")
    factorize(stored(file), R, folder=tmp_path, **OPTIONS)
    for name in (".thesis.new", ".pass-x.npz.new", "notes.txt"):
        assert (tmp_path / name).read_text() == "mine"


def test_a_folder_serves_one_run_at_a_time(file, tmp_path):
    said: list[str] = []

    def second(row):
        if not said:
            with pytest.raises(ValueError, match=r"is using .*another folder") as found:
                NMF(R, memory_limit=LIMIT, folder=tmp_path).fit(stored(file))
            said.append(str(found.value))

    factorize(stored(file), R, folder=tmp_path, callback=second, **OPTIONS)
    assert said
    NMF(R, memory_limit=LIMIT, folder=tmp_path, max_iter=2, tol=0).fit(stored(file))


def test_a_full_disk_is_said_and_ends_no_run(file, tmp_path, monkeypatch):
    whole = factorize(stored(file), R, **OPTIONS)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    B = blocks(file)
    with journal.keep_passes(B, tmp_path, 0):
        monkeypatch.setattr("factormer.data.files.os.fsync", full)
        with pytest.warns(RuntimeWarning, match=r"a pass over V is not kept: .*No space left"):
            result = factorize(B, R, tol=0, max_iter=25)
    np.testing.assert_allclose(result.W, whole.W, rtol=1e-12)
    assert passes(tmp_path) == []


def test_a_store_that_goes_away_names_the_folder(file, tmp_path):
    source: Any = source_of(stored(file))
    gone: list[int] = []

    def read(a: int, b: int) -> Any:
        if gone:
            raise ConnectionError("the store is gone")
        return source.read(a, b)

    B = blocks_of(replace(source, read=read, take=None), LIMIT)

    def lose(row):
        if row.passes == 3:
            gone.append(1)

    words = r"could not be read \(the store is gone\).* keeps 3 passes: the same call goes on there"
    with pytest.raises(OSError, match=words):
        factorize(B, R, folder=tmp_path, tol=0, max_iter=25, callback=lose)
    gone.clear()
    assert factorize(B, R, folder=tmp_path, tol=0, max_iter=25).n_iter == 25


def test_data_in_memory_needs_no_folder(file, tmp_path):
    V = np.load(file)
    result = factorize(V, R, max_iter=3, tol=0, folder=tmp_path / "none")
    np.testing.assert_array_equal(result.W, factorize(V, R, max_iter=3, tol=0).W)
    assert not (tmp_path / "none").exists()
