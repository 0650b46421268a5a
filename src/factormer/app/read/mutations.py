"""The 96 types of single-base substitutions, and the order in which they are drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TYPE = re.compile(r"([ACGT])\[([CT])>([ACGT])\]([ACGT])")  # A[C>T]G
_FLAT = re.compile(r"([ACGT])([CT])([ACGT])[>:\-_ ]+([ACGT])")  # ACG>T
CLASSES = ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
N_TYPES = 96


def substitution(label: str) -> tuple[str, str] | None:
    """The class and the context of a label: A[C>T]G is C>T in A.G; None for other labels."""
    text = label.strip()
    if match := _TYPE.fullmatch(text):
        before, base, to, after = match.groups()
    elif match := _FLAT.fullmatch(text):
        before, base, after, to = match.groups()
    else:
        return None
    kind = f"{base}>{to}"
    return (kind, f"{before}{base}{after}") if kind in CLASSES else None


def order_of(labels: Sequence[str] | None) -> list[int] | None:
    """Return the places of the labels in the usual order if they are the 96 types, else None.

    By class, then by the base before and the base after.
    """
    if labels is None or len(labels) != N_TYPES:
        return None
    found = [substitution(label) for label in labels]
    keys = [(CLASSES.index(s[0]), s[1]) for s in found if s is not None]
    if len(set(keys)) != N_TYPES:
        return None
    return sorted(range(N_TYPES), key=keys.__getitem__)
