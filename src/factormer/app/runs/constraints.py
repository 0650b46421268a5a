"""Penalties and constraints as text: "l1:0.1", "simplex", "group:0.5:rows", "bounds:0:1"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from factormer.problem.penalties import (
    L1,
    L2,
    Bounds,
    Free,
    Group,
    Orthogonal,
    Penalty,
    Simplex,
    Smooth,
    Volume,
)

KINDS: dict[str, type[Penalty]] = {
    "l1": L1,
    "l2": L2,
    "smooth": Smooth,
    "orthogonal": Orthogonal,
    "volume": Volume,
    "group": Group,
    "simplex": Simplex,
    "bounds": Bounds,
    "free": Free,
}


def parse(text: str) -> Penalty:
    """A penalty from its name and the values of its fields, in order, after colons."""
    name, *values = text.split(":")
    if name.lower() not in KINDS:
        raise ValueError(f"there is no constraint {name!r}; choose {', '.join(KINDS)}")
    kind = KINDS[name.lower()]
    names = [field.name for field in fields(kind)]
    usage = ":".join([name.lower(), *(field.upper() for field in names)])
    if len(values) > len(names):
        raise ValueError(f"the constraint {text!r} has too many values; write {usage}")
    options: dict[str, Any] = {
        n: v if n == "by" else _number(v) for n, v in zip(names, values, strict=False)
    }
    if None in options.values():
        raise ValueError(f"the constraint {text!r} has a value that is not a number; write {usage}")
    if kind is not Bounds and math.inf in options.values():
        raise ValueError(f"the constraint {text!r} has a value that is infinite; write {usage}")
    try:
        return kind(**options)
    except TypeError as error:  # a field without a default was left out
        raise ValueError(f"the constraint {text!r} lacks a value; write {usage}") from error


def _number(text: str) -> float | None:
    """Return the number that a text is, if it is one."""
    try:
        return None if "_" in text else float(text)  # Python reads 1_2 as 12
    except ValueError:
        return None


def parse_all(texts: Sequence[str]) -> list[Penalty] | None:
    """Several penalties, or None if there are none."""
    return [parse(text) for text in texts] or None
