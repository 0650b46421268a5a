"""Locks: one holder at a time, whether the kernel or flags keep them; the dead hold nothing."""

import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from factormer.data import locks
from factormer.data.locks import Lock, held, locked


@pytest.fixture(params=["kernel", "flags"])
def kind(request, monkeypatch) -> str:
    if request.param == "kernel":
        pytest.importorskip("fcntl")
    else:
        monkeypatch.setattr(locks, "fcntl", None)
    return request.param


@pytest.mark.usefixtures("kind")
def test_a_lock_has_one_holder_and_leaves_nothing(tmp_path):
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.take()
    assert not second.take()
    assert not second.take()
    assert Lock(tmp_path / "other").take()
    first.release()
    assert second.take()
    assert not first.take()
    second.release()
    second.release()
    assert not list(tmp_path.glob("lock*"))


@pytest.mark.usefixtures("kind")
def test_never_two_at_a_time(tmp_path):
    inside, most, taken = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, taken
        for _ in range(10):
            with locked(tmp_path / "lock"):
                inside += 1
                most = max(most, inside)
                taken += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, taken) == (1, 40)


TAKE = """
import sys, types
from pathlib import Path
for name in ("factormer", "factormer.data"):  # without what the package loads: it takes seconds
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(Path(sys.argv[3], *name.split(".")[1:]))]
from factormer.data import locks
if sys.argv[2] == "flags":
    locks.fcntl = None
assert locks.Lock(Path(sys.argv[1])).take()
print("taken", flush=True)
sys.stdin.read()
"""


def test_the_end_of_a_process_releases_its_locks(tmp_path, kind):
    package, pipe = str(Path(locks.__file__).parents[1]), subprocess.PIPE
    command = [sys.executable, "-c", TAKE, str(tmp_path / "lock"), kind, package]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        ours = Lock(tmp_path / "lock")
        assert not ours.take()
        other.kill()
        other.wait()
        assert ours.take()
        ours.release()
        assert other.stdin is not None
    assert not list(tmp_path.iterdir())


def flag(folder: Path, text: str, age: float) -> Path:
    """The flag of another process, last touched so many seconds ago."""
    path = folder / "lock.other"
    path.write_text(text)
    now = path.stat().st_mtime
    os.utime(path, (now - age, now - age))
    return path


US, HERE = os.getpid(), platform.node()


@pytest.mark.parametrize(
    ("text", "age", "is_live"),
    [
        (f"{US} {HERE}", 0, True),
        (f"{US} {HERE}", 2 * locks.PATIENCE, False),  # the number went to another process
        (f"{2**22 + 1} {HERE}", 0, False),
        (f"{2**22 + 1} elsewhere", 0, True),
        (f"{2**22 + 1} elsewhere", 2 * locks.PATIENCE, False),
        ("", 0, True),  # it is just being written
        ("", 2 * locks.PATIENCE, False),
        ("\0not a number", 0, True),
        (f"{10**40} {HERE}", 0, False),
    ],
    ids=["ours", "old", "dead", "far", "far and old", "new", "empty", "odd", "huge"],
)
def test_a_flag_counts_while_its_process_lives(tmp_path, monkeypatch, text, age, is_live):
    monkeypatch.setattr(locks, "fcntl", None)
    other, lock = flag(tmp_path, text, age), Lock(tmp_path / "lock")
    assert lock.take() == (not is_live)
    assert other.exists() == is_live
    lock.release()
    assert [path.name for path in tmp_path.iterdir()] == (["lock.other"] if is_live else [])


def test_a_flag_is_touched_while_it_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "BEAT", 0.001)
    touched, plain = threading.Event(), os.utime

    def touch(path: Path) -> None:
        plain(path)
        touched.set()

    monkeypatch.setattr(locks.os, "utime", touch)
    lock = Lock(tmp_path / "lock")
    assert lock.take()
    assert touched.wait(60)
    lock.release()
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_locks_gets_flags(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(handle: int, how: int) -> None:
        raise OSError(locks.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.take()
    assert not second.take()
    first.release()


@pytest.mark.usefixtures("kind")
def test_links_are_no_locks(tmp_path):
    (tmp_path / "mine").write_text("kept")
    for name in ("lock", "lock.a"):  # where the kernel keeps it, and where a flag is
        (tmp_path / name).symlink_to("mine")
    with pytest.raises(OSError, match="it is a symbolic link"):
        Lock(tmp_path / "lock").take()
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.mark.usefixtures("kind")
def test_a_place_without_room_is_told(tmp_path):
    with pytest.raises(OSError, match=r"lock(\.\w+)? cannot be written \(No such file"):
        Lock(tmp_path / "nowhere" / "lock").take()


@pytest.mark.usefixtures("kind")
def test_a_folder_that_is_held_is_refused(tmp_path):
    sentence = r"another run is using .*; wait for it, or choose another --out"
    with held(tmp_path), pytest.raises(ValueError, match=sentence), held(tmp_path):
        pass
    with held(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
