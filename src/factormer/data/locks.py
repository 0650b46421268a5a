"""Locks between processes, which the end of a process releases, however it comes.

The kernel keeps them where Python has `fcntl`. Elsewhere, as on Windows, a lock is a flag: a file
of its own for each process that wants it, touched every few seconds. A process shows its flag first
and looks for others then, so two can never both believe that they are alone.
"""

from __future__ import annotations

import errno
import os
import platform
import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from factormer.data.files import check_place, unwritten, write

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

BEAT = 3.0  # seconds between two touches of a flag
PATIENCE = 30.0  # seconds after the last touch from which a flag counts for nothing
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of a file system without them


class Lock:
    """A lock that one process at a time holds; `path` is a file for this purpose alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        self._flag: _Flag | None = None

    def take(self) -> bool:
        """Whether it is ours now; False where another holds it."""
        try:
            if fcntl is not None:
                with suppress(NotImplementedError):
                    self._handle = _by_kernel(self.path)
                    return self._handle is not None
            self._flag = _Flag.shown(self.path)
        except OSError as error:
            if error.strerror is None:  # a sentence
                raise
            raise unwritten(self.path, error) from error
        return self._flag is not None

    def release(self) -> None:
        """Let others have it."""
        if self._handle is not None:
            with suppress(OSError):
                self.path.unlink()
            os.close(self._handle)
        if self._flag is not None:
            self._flag.take_down()
        self._handle = self._flag = None


def _by_kernel(path: Path) -> int | None:
    """The handle of a file that is locked; None where another has locked it."""
    assert fcntl is not None
    while True:
        check_place(path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), path.lstat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(handle)
            if error.errno in _NO_LOCKS:
                raise NotImplementedError from error
            raise
        os.close(handle)  # whoever held it has removed it: the next one is another file


class _Flag:
    """The flag of this process, which a thread touches until it is taken down."""

    def __init__(self, path: Path) -> None:
        self.path, self._ended = path, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="factormer-lock", daemon=True)
        self._thread.start()

    @staticmethod
    def shown(path: Path) -> _Flag | None:
        """Our flag beside those that mean nothing any more; None where another is shown."""
        ours = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
        check_place(ours)
        handle = os.open(ours, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.write(handle, f"{os.getpid()} {platform.node()}".encode())
        finally:
            os.close(handle)
        now = ours.stat().st_mtime  # by the clock of the file system, as are all the others
        for other in path.parent.glob(f"{path.name}.*"):
            if other != ours and _is_live(other, now):
                with suppress(OSError):
                    ours.unlink()
                return None
        return _Flag(ours)

    def take_down(self) -> None:
        """Remove the flag."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            self.path.unlink()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            try:
                os.utime(self.path)
            except FileNotFoundError:  # others took this process for dead
                return
            except OSError:  # for now, perhaps
                continue


def _is_live(flag: Path, now: float) -> bool:
    """Whether the process that shows a flag is there; a flag that means nothing is removed."""
    check_place(flag)
    age = 0.0
    try:
        age = now - flag.stat().st_mtime
        pid, _, host = flag.read_text(errors="replace").partition(" ")
    except FileNotFoundError:  # it was just taken down
        return False
    except OSError:  # of another user, or in use
        return age <= PATIENCE
    gone = host == platform.node() and pid.isdecimal() and not _is_running(int(pid))
    if age <= PATIENCE and not gone:
        return True
    with suppress(OSError):
        flag.unlink()
    return False


def _is_running(pid: int) -> bool:
    """Whether a process of this computer exists; on Windows only its flag can tell."""
    if os.name == "nt":  # where a signal of number 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock, and hold it."""
    lock = Lock(path)
    while not lock.take():
        time.sleep(random.uniform(0.005, 0.05))
    try:
        yield
    finally:
        lock.release()


@contextmanager
def held(folder: Path, option: str = "--out") -> Iterator[None]:
    """Make a folder if it is missing, and lock it against other runs; `option` names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / ".run", "")
        (folder / ".run").unlink()
    except OSError as error:
        raise OSError(
            f"{folder} cannot hold a run ({error.strerror or error}); choose another {option}"
        ) from error
    lock = Lock(folder / ".run.lock")
    if not lock.take():
        raise ValueError(f"another run is using {folder}; wait for it, or choose another {option}")
    try:
        yield
    finally:
        lock.release()
