"""Tables with labels: .csv and .tsv."""

from __future__ import annotations

import gzip
import math
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from factormer.read.data import Data, DataError, plain, reading, rises
from factormer.read.dialect import SEPARATORS, Dialect, detect

_MANY = 8  # numbers from which it is no chance that they rise, or count
_SAMPLE = 50  # lines that tell how a table is written
_CORNERS = re.compile(
    r"(.*[\s_.-])?(ids?|index|idx|#|no|nr|names?|labels?|keys?|rows?|samples?|genes?|probes?|items?|"
    r"features?|wavelengths?|frequenc(y|ies)|times?|dates?|years?)",
    re.IGNORECASE,
)
_IDS = re.compile(r"(.*[\s_.-])?(ids?|index|idx|#|no|nr|rows?|names?|labels?|keys?)", re.IGNORECASE)


def read_table(path: Path, *, header: bool | None = None, index: bool | None = None) -> Data:
    """Numbers in lines, with labels in the first line and in the first column, if there are any.

    What separates the cells is found out. `header` and `index` say whether the first line and the
    first column are labels; by default they are where one of their cells is no number, where their
    first cell is empty, and where they are numbers that name: see `_is_header`, `_is_index`. Empty
    cells and NA are entries that are not known.
    """
    is_tabbed = path.name.removesuffix(".gz").endswith(".tsv")
    opened = gzip.open if path.suffix == ".gz" else open
    with (
        reading(path, "a table"),
        opened(path, "rt", encoding="utf-8-sig", newline="") as file,
    ):
        dialect = detect(list(islice(file, _SAMPLE)), Dialect("\t" if is_tabbed else ","))
        file.seek(0)
        numbered = _without_end(dialect.cells(file))
        lines = [cells for _, cells in numbered]
        if not lines:
            raise DataError(f"{path} is empty; it must be a table of numbers")
        has_header = _is_header(lines, dialect) if header is None else header
        head, body = (lines[0], lines[1:]) if has_header else (None, lines)
        if not body:
            raise DataError(f"{path} has a header and no rows; it must be a table of numbers")
        has_names = _is_index(head, body, dialect) if index is None else index
        if has_names and len(body[0]) == 1:
            raise DataError(
                f"{path} has one column, which cannot be the labels of rows: --no-index"
            )
        values = np.array(
            [
                _row(line, dialect, has_names, k, len(body[0]), path)
                for k, line in numbered[has_header:]
            ]
        )
    data = plain(values, path, f"table {dialect}; {_told(has_header, has_names)}")
    rows, columns = data.rows, data.columns
    if has_names:
        called = _called(head[0]) if head and len(head) == len(body[0]) else ""
        names = [line[0].strip() for line in body]
        rows = rows.labelled(names, called)
        if _counts(names) or (head and _IDS.fullmatch(head[0].strip())):
            rows = replace(rows, positions=None)  # names, and no places on a line
    if head is not None:
        names = [name.strip() for name in head]
        # Tables written by R name the columns alone.
        columns = columns.labelled(names if len(names) == columns.size else names[has_names:])
    return Data(data.V, rows, columns, data.name, data.source)


def _without_end(numbered: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """The same without the empty cells at the end, where every line closes with a separator."""
    if any(len(cells) == 1 or cells[-1].strip() for _, cells in numbered):
        return numbered
    return [(k, cells[:-1]) for k, cells in numbered]


def _is_header(lines: list[list[str]], dialect: Dialect) -> bool:
    """Whether the first line holds labels.

    Where it is a word and then numbers, these are labels if the column below the word is numbers
    too, if the word is a usual one for names, or if the numbers rise or fall all along.
    """
    (corner, *others), body = lines[0], lines[1:]
    first, *rest = (dialect.number(cell) for cell in lines[0])
    if None in rest or not others:
        return None in rest or first is None
    if not corner.strip():
        return True
    if first is not None:
        return False
    below = all(dialect.number(line[0]) is not None for line in body)
    rising = len(others) >= _MANY and rises(others)
    return (bool(body) and below) or rising or bool(_CORNERS.fullmatch(corner.strip()))


def _is_index(head: list[str] | None, body: list[list[str]], dialect: Dialect) -> bool:
    """Whether the first column holds labels of rows.

    Numbers are labels where the header leaves out their name, calls them ids or, if they rise,
    times and the like, or names all other columns by numbers; and where they count the rows.
    """
    if len(body[0]) == 1:
        return False
    cells = [line[0].strip() for line in body]
    numbers = [dialect.number(cell) for cell in cells]
    if None in numbers:
        return True
    if head is not None:
        corner = head[0].strip()
        is_word, *are_words = (dialect.number(cell) is None for cell in head)
        if len(head) < len(body[0]) or not corner or (is_word and not any(are_words)):
            return True
        if _IDS.fullmatch(corner) and len(set(numbers)) == len(numbers):
            return True
        if _CORNERS.fullmatch(corner) and len(numbers) > 2 and rises(cells):
            return True
    return len(cells) >= _MANY and _counts(cells)


def _counts(names: list[str]) -> bool:
    """Whether these are the numbers from 0 on, or from 1 on, in order."""
    size = len(names)
    return any(names == [str(first + k) for k in range(size)] for first in (0, 1))


def _told(has_header: bool, has_names: bool) -> str:
    """Where labels were found, in words; --no-header and --no-index are the remedies."""
    places = ["the first line"] * has_header + ["the first column"] * has_names
    return f"labels in {' and '.join(places)}" if places else "no labels"


def _called(head: str) -> str:
    """What the rows are called, from the head of their names: "sample" makes them samples."""
    return f"{head.strip().removesuffix('s')}s"


def _row(
    line: list[str], dialect: Dialect, has_name: bool, number: int, width: int, path: Path
) -> list[float]:
    if len(line) != width:
        raise DataError(
            f"{path}, line {number}, has {len(line)} cells where others have {width}; "
            "every line must have as many"
        )
    cells = line[1:] if has_name else line
    values = [dialect.number(cell) for cell in cells]
    if None in values:
        at = values.index(None)
        remedy = "it must be a number, or empty where it is not known"
        if width == 1:
            remedy += f"; cells must be separated by {SEPARATORS}"
        raise DataError(
            f"{path}, line {number}, column {at + 1 + has_name}, is {cells[at][:40]!r}; {remedy}"
        )
    return [math.nan if value is None else value for value in values]
