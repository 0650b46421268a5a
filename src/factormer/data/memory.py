"""How much memory there is: that of the machine, or of the container that the process is in."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_GROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@cache
def memory() -> float:
    """Bytes that the process may use in total; infinite where the system does not say."""
    room = math.inf
    with suppress(AttributeError, ValueError, OSError):  # Windows
        room = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min([room, *_limits()])


def _limits() -> Iterator[float]:
    """The limits of the control groups of the process, version 2 and version 1, where set."""
    lines: list[str] = []
    with suppress(OSError):  # not Linux
        lines = _OWN.read_text().splitlines()
    own = {kind: path.strip("/") for _, kind, path in (line.split(":", 2) for line in lines)}
    for kind, top, name in (
        ("", _GROUPS, "memory.max"),
        ("memory", _GROUPS / "memory", "memory.limit_in_bytes"),
    ):
        group = top / own.get(kind, "")
        for folder in (group, *group.parents):
            if folder.is_relative_to(top):
                with suppress(ValueError, OSError):  # "max" where there is no limit
                    yield float((folder / name).read_text())
