"""Atomic files, and JSON that is checked when read."""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_PATIENCE = 20  # times to try
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
        _replace(beside, path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise unwritten(path, error) from error
        raise


def _replace(new: Path, path: Path) -> None:
    """Move a file over another; on Windows this has to wait while somebody reads that."""
    for _ in range(_PATIENCE if os.name == "nt" else 0):
        with suppress(PermissionError):
            return os.replace(new, path)
        time.sleep(0.05)
    os.replace(new, path)


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


def parsed(text: str) -> Any:
    """Parse JSON; too deeply nested, or not JSON, it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
