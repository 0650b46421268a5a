"""Tables with labels: .csv, .tsv and .txt.

Small ones are read cell by cell, by `Lines`; large ones by compiled code if it is installed, with
the same result. What that cannot read, `Lines` reads too, or reports which cell is wrong.
"""

from __future__ import annotations

import csv
import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from factormer.app.read.compiled import Columns, Unsuited
from factormer.app.read.data import Data, DataError, plain, reading
from factormer.app.read.dialect import SEPARATORS, Dialect, is_almost
from factormer.app.read.labels import are_ids, counts, is_header, is_index
from factormer.app.read.opening import Opening, lines_of, opening_of
from factormer.app.read.positions import described

_LARGE = 1 << 20  # bytes from which it pays to load compiled code


@runtime_checkable
class Cells(Protocol):
    """The cells of a table; the first line may or may not be a header."""

    first: list[str]

    def names(self, has_header: bool) -> list[str]:
        """The cells of the first column, without that of the header."""
        ...

    def width(self, has_header: bool) -> int:
        """The number of cells in a line other than the header."""
        ...

    def values(self, has_header: bool, has_names: bool) -> Float[np.ndarray, "m n"]:
        """The cells that are not labels, as numbers."""
        ...


def read_table(path: Path, *, header: bool | None = None, index: bool | None = None) -> Data:
    """Numbers in lines, with labels in the first line and in the first column, if there are any.

    The separator is detected, and comments at the top are skipped. `header` and `index` say
    whether the first line and the first column are labels; by default they are if one of their
    cells is not a number, if their first cell is empty, or if their numbers are names: see
    `is_header`, `is_index`. Empty cells and NA are unknown entries.
    """
    with reading(path, "a table"):
        opening = opening_of(path, header=header)
        if path.stat().st_size >= _LARGE:
            with suppress(Unsuited):
                return _labelled(Columns(path, opening), path, opening.dialect, header, index)
        return _labelled(Lines(path, opening), path, opening.dialect, header, index)


def _labelled(
    cells: Cells, path: Path, dialect: Dialect, header: bool | None, index: bool | None
) -> Data:
    below = cells.names(True)
    has_header = is_header(cells.first, below, dialect) if header is None else header
    head = cells.first if has_header else None
    names = below if has_header else cells.names(False)
    if not names:
        raise DataError(f"{path} has a header and no rows; it must be a table of numbers")
    width = cells.width(has_header)
    has_names = is_index(head, names, width, dialect) if index is None else index
    if has_names and width == 1:
        raise DataError(f"{path} has one column, which cannot be the labels of rows: --no-index")
    values = cells.values(has_header, has_names)
    data = plain(values, path, f"table {dialect}; {_places(has_header, has_names)}")
    rows, columns = data.rows, data.columns
    if has_names:
        called = _called(head[0]) if head and len(head) == width else ""
        names = [name.strip() for name in names]
        rows = rows.labelled(names, called)
        if counts(names) or (head and are_ids(head[0])):
            rows = replace(rows, positions=None)  # names, not positions on a line
        elif head and rows.positions is not None:
            noun, unit = described(head[0])
            rows = replace(rows, noun=noun or rows.noun, unit=unit)
    if head is not None:
        titles = [name.strip() for name in head]
        # Tables written by R have no name above the row names.
        columns = columns.labelled(titles if len(titles) == columns.size else titles[has_names:])
    return Data(data.V, rows, columns, data.name, data.source)


class Lines:
    """The cells of a table one by one, as Python reads them."""

    def __init__(self, path: Path, opening: Opening) -> None:
        self._path, self._dialect = path, opening.dialect
        with lines_of(path, opening) as lines:
            try:
                self._numbered = _without_end(self._dialect.cells(lines, opening.skipped))
            except csv.Error as error:
                raise DataError(
                    f"{path} has a cell of more than {csv.field_size_limit()} characters; check "
                    "that every quote is closed, and that these are numbers"
                ) from error
        if not self._numbered:
            raise DataError(f"{path} is empty; it must be a table of numbers")
        self.first = self._numbered[0][1]

    def names(self, has_header: bool) -> list[str]:
        return [cells[0].strip() for _, cells in self._numbered[has_header:]]

    def width(self, has_header: bool) -> int:
        return len(self._numbered[has_header][1])

    def values(self, has_header: bool, has_names: bool) -> Float[np.ndarray, "m n"]:
        width = self.width(has_header)
        return np.array(
            [
                self._row(cells, has_names, number, width)
                for number, cells in self._numbered[has_header:]
            ]
        )

    def _row(self, line: list[str], has_name: bool, number: int, width: int) -> list[float]:
        if len(line) != width:
            raise DataError(
                f"{self._path}, line {number}, has {len(line)} cells where others have {width}; "
                "every line must have the same number"
            )
        cells = line[1:] if has_name else line
        values = [self._dialect.number(cell) for cell in cells]
        if None in values:
            at = values.index(None)
            raise DataError(
                f"{self._path}, line {number}, column {at + 1 + has_name}, is "
                f"{cells[at].strip()[:40]!r}; {_remedy(cells[at], width)}"
            )
        return [math.nan if value is None else value for value in values]


def _remedy(cell: str, width: int) -> str:
    if is_almost(cell):
        return (
            "it must be a number in plain digits, such as 1000; if such cells are names, use "
            "--header or --index"
        )
    remedy = "it must be a number, or empty where it is not known"
    return f"{remedy}; cells must be separated by {SEPARATORS}" if width == 1 else remedy


def _without_end(numbered: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Leave out the empty cells at the end, where every line closes with a separator."""
    if any(len(cells) == 1 or cells[-1].strip() for _, cells in numbered):
        return numbered
    return [(k, cells[:-1]) for k, cells in numbered]


def _places(has_header: bool, has_names: bool) -> str:
    """Say in words where labels were found; --no-header and --no-index are the remedies."""
    places = ["the first line"] * has_header + ["the first column"] * has_names
    return f"labels in {' and '.join(places)}" if places else "no labels"


def _called(head: str) -> str:
    """Return the name of the rows by the header of their names: "sample" makes them samples."""
    return f"{head.strip().removesuffix('s')}s"
