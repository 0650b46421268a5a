"""How much memory there is, of the machine or of the container, and how much may be used."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from factormer.sentence import Sentence

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 2 ** (10 * k) for k, unit in enumerate("KMGT", 1)}
_LONG = 10**18  # bytes
_UNTOLD = 2.0**32  # the limit where the system does not say how much memory it has
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


def as_bytes(limit: Any) -> float:
    """A `memory_limit` in bytes: a number, or text such as "4GB", "512MiB"; None: half of all."""
    if limit is None:
        return memory() / 2 if memory() < math.inf else _UNTOLD
    size = math.nan
    if isinstance(limit, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?|)B?\s*", limit.upper())
        size = float(found[1]) * _UNITS[found[2]] if found else math.nan
    elif isinstance(limit, Real) and not isinstance(limit, bool):
        with suppress(OverflowError):  # beyond 1e308
            size = float(limit)
    if not 0 < size < math.inf:
        is_long = isinstance(limit, int) and abs(limit) > _LONG  # which may have no repr at all
        raise ValueError(
            Sentence(
                "{memory_limit} is {given}; it must be a number of bytes above 0, or text such as "
                "'4GB' or '512MiB'",
                given="a number beyond 1e18" if is_long else repr(limit),
            )
        )
    return size


def bytes_on(device: Any, limit: Any = None) -> float:
    """A `memory_limit` for a device, in bytes; None: nine tenths of what is free there."""
    if limit is not None or device.type != "cuda":
        return as_bytes(limit)
    return 0.9 * torch.cuda.mem_get_info(device)[0]
