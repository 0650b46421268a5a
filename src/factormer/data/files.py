"""Files put in place whole or not at all, folders with one run each, JSON read with suspicion."""

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
    """Raise where something stands there that is not a plain file: it is never replaced."""
    try:
        mode = path.lstat().st_mode
    except OSError:  # nothing there, or no way to it, which writing tells
        return
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no plain file")
        raise OSError(
            f"{path} cannot be written (it is {kind}, which is never replaced); choose a file in a "
            "folder that is there, or move it out of the way"
        )


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the place of the old one once it is whole and on disk."""
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
    """Put a file in place whole, or leave the old one as it is."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def unwritten(path: Path, error: OSError) -> OSError:
    """Which file could not be written and why, with the number of the error."""
    told = OSError(
        f"{path} cannot be written ({error.strerror or error}); choose a file in a folder that is "
        "there, make room, or choose another folder: what was there before is as it was"
    )
    told.errno = error.errno
    return told


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a folder if need be, and keep other runs out of it meanwhile."""
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
            raise ValueError(
                f"another run is at work in {folder}; wait for it, or choose another --out"
            )
        yield
    finally:
        os.close(handle)  # which lets others in, as the end of the process does


def _locks(handle: int) -> bool:
    """Whether nobody else has locked it."""
    assert fcntl is not None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def parsed(text: str) -> Any:
    """What JSON says; nested too deep, or not JSON, it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
