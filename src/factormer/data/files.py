"""Atomic files, folders locked to one run, and JSON that is checked when read."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows, where two runs in one folder are not noticed
    fcntl = None

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def check_place(path: Path) -> None:
    """Raise where the path is not a plain file: nothing else is ever replaced."""
    try:
        mode = path.lstat().st_mode
    except OSError:  # it does not exist, or cannot be reached: writing will raise
        return
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no plain file")
        raise OSError(
            f"{path} cannot be written (it is {kind}, which is never replaced); choose a file in a "
            "folder that exists, or move it away"
        )


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which replaces the old one once it is complete and on disk."""
    check_place(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise unwritten(path, error) from error
        raise


def write(path: Path, content: str | bytes) -> None:
    """Write a file completely, or leave the old one as it is."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def unwritten(path: Path, error: OSError) -> OSError:
    """An error that says which file could not be written and why, with the original number."""
    new = OSError(
        f"{path} cannot be written ({error.strerror or error}); choose a file in a folder "
        "that exists, make room, or choose another folder: what was there before is unchanged"
    )
    new.errno = error.errno
    return new


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, and lock it against other runs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / ".run", "")
        (folder / ".run").unlink()
    except OSError as error:
        raise OSError(
            f"{folder} cannot hold a run ({error.strerror or error}); choose another --out"
        ) from error
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not _locks(handle):
            raise ValueError(f"another run is using {folder}; wait for it, or choose another --out")
        yield
    finally:
        os.close(handle)  # which unlocks it, as the end of the process does


def _locks(handle: int) -> bool:
    """Whether no other process has locked it."""
    assert fcntl is not None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def parsed(text: str) -> Any:
    """Parse JSON; too deeply nested, or not JSON, it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
