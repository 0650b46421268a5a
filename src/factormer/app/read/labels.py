"""Find the labels of a table: in its first line, in its first column, in both or nowhere."""

from __future__ import annotations

import re

from factormer.app.read.data import rises
from factormer.app.read.dialect import Dialect
from factormer.app.read.positions import is_position

_MANY = 8  # numbers, at least, for an increasing order not to be chance
_CORNERS = re.compile(
    r"(.*[\s_.-])?(ids?|index|idx|#|no|nr|names?|labels?|keys?|rows?|samples?|genes?|probes?|items?|"
    r"features?|wavelengths?|frequenc(y|ies)|times?|dates?|years?)",
    re.IGNORECASE,
)
_IDS = re.compile(r"(.*[\s_.-])?(ids?|index|idx|#|no|nr|rows?|names?|labels?|keys?)", re.IGNORECASE)


def is_header(first: list[str], below: list[str], dialect: Dialect) -> bool:
    """Whether the first line holds labels; `below` are the first cells of all others.

    Where it is a word and then numbers, these are labels if the column below the word is numbers
    too, if the word is a usual one for names, or if the numbers increase or decrease.
    """
    corner, *others = first
    is_word, *are_words = (not dialect.is_number(cell) for cell in first)
    if any(are_words) or not others:
        return any(are_words) or is_word
    if not corner.strip():
        return True
    if not is_word:
        return False
    rising = len(others) >= _MANY and rises(others)
    if rising or _CORNERS.fullmatch(corner.strip()):
        return True
    return bool(below) and all(map(dialect.is_number, below))


def is_index(head: list[str] | None, names: list[str], width: int, dialect: Dialect) -> bool:
    """Whether the first column, whose cells are `names`, holds labels of rows.

    Numbers are labels where the header leaves out their name, calls them ids or, if they rise,
    times and the like, or names all other columns by numbers; and where they count the rows.
    """
    if width == 1:
        return False
    if not all(map(dialect.is_number, names)):
        return True
    if head is not None:
        corner = head[0].strip()
        is_word, *are_words = (not dialect.is_number(cell) for cell in head)
        if len(head) < width or not corner or (is_word and not any(are_words)):
            return True
        if _IDS.fullmatch(corner) and len(set(names)) == len(names):
            return True
        is_known = _CORNERS.fullmatch(corner) or is_position(corner)
        if is_known and len(names) > 2 and rises(names):
            return True
    return len(names) >= _MANY and counts(names)


def counts(names: list[str]) -> bool:
    """Whether these are the numbers 0, 1, … or 1, 2, … in order."""
    first = names[0] if names else ""
    return first in ("0", "1") and all(name == str(k) for k, name in enumerate(names, int(first)))


def are_ids(corner: str) -> bool:
    """Whether the header of the row names says that they are not positions on a line."""
    return _IDS.fullmatch(corner.strip()) is not None
