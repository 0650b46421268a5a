"""Large tables: their cells by pyarrow, which parses numbers in compiled code."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from factormer.app.read.dialect import ABSENT, BLANKS
from factormer.app.read.opening import Opening, opened, unmarked

_ABSENT = [form for word in ABSENT for form in (word, word.upper(), word.capitalize())] + ["NaN"]
_BLOCK = 1 << 22  # bytes parsed at once, where lines are not long
_LINES = 64  # per block, at least


class Unsuited(Exception):  # noqa: N818 - not an error: another reader takes the file
    """Cells that need to be looked at one by one."""


class Columns:
    """The cells of a table, the first column as text and all others as numbers.

    Only what every reader reads the same way is read here: all else is Unsuited.
    """

    def __init__(self, path: Path, opening: Opening) -> None:
        self._dialect = opening.dialect
        lines = [cells for _, cells in self._dialect.cells(opening.sample)]
        is_closed = all(not line[-1].strip() for line in lines)  # by separators, perhaps
        if len(lines) < 2 or is_closed or any(line.endswith("\r") for line in opening.sample):
            raise Unsuited
        self._width = len(lines[1])
        with opened(path, "rb") as file:
            for _ in range(opening.skipped):
                file.readline()
            self.first = self._read_first(file, opening)
            table = _parsed(file, self._width, opening)
        self._below: list[str] = [name.strip() for name in table.column(0).to_pylist()]
        if (self._dialect == BLANKS or self._width == 1) and not all(map(_is_plain, self._below)):
            raise Unsuited  # blank lines, and cells that span lines, are treated differently there
        self._numbers = _filled(table)

    def names(self, has_header: bool) -> list[str]:
        return self._below if has_header else [self.first[0].strip(), *self._below]

    def width(self, has_header: bool) -> int:
        if not has_header and len(self.first) != self._width:
            raise Unsuited
        return self._width

    def values(self, has_header: bool, has_names: bool) -> Float[np.ndarray, "m n"]:
        values = self._numbers
        if not has_names:
            values[:, 0] = self._all_numbers(self._below)
        if has_header:
            return values[:, has_names:]
        return np.vstack([self._all_numbers(self.first[has_names:]), values[:, has_names:]])

    def _all_numbers(self, cells: list[str]) -> Float[np.ndarray, " k"]:
        numbers = [self._dialect.number(cell) for cell in cells]
        if None in numbers:
            raise Unsuited
        return np.array(numbers, dtype=np.float64)

    def _read_first(self, file: Any, opening: Opening) -> list[str]:
        """The first line, and nothing after it."""
        text = file.readline().decode("utf-8").removeprefix("\ufeff")
        text = unmarked(text) if opening.is_marked else text
        if not text.strip() or text.count('"') % 2:  # no line, or only part of one
            raise Unsuited
        return self._dialect.cells([text])[0][1]


def _is_plain(cell: str) -> bool:
    return bool(cell) and "\n" not in cell and "\r" not in cell


def _parsed(file: Any, width: int, opening: Opening) -> Any:
    """The lines after the first, as a table of pyarrow's."""
    try:
        pa, csv_ = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.csv"))
    except ImportError as error:
        raise Unsuited from error
    names = [str(j) for j in range(width)]
    longest = max(map(len, opening.sample))
    absent = [word for word in _ABSENT if word or opening.dialect != BLANKS]
    try:
        return csv_.read_csv(
            file,
            read_options=csv_.ReadOptions(
                column_names=names, block_size=max(_BLOCK, _LINES * longest)
            ),
            parse_options=csv_.ParseOptions(
                delimiter=opening.dialect.separator, newlines_in_values=True
            ),
            convert_options=csv_.ConvertOptions(
                column_types={name: pa.float64() for name in names} | {names[0]: pa.string()},
                null_values=absent,
                strings_can_be_null=False,
                decimal_point=opening.dialect.point,
            ),
        )
    except (pa.ArrowException, csv.Error) as error:
        raise Unsuited from error


def _filled(table: Any) -> Float[np.ndarray, "m w"]:
    """The numbers, with room for the first column; what is not known, and nothing else, is NaN."""
    values = np.empty((table.num_rows, table.num_columns))
    for j, column in enumerate(table.columns[1:], 1):
        values[:, j] = column.to_numpy()
        if np.count_nonzero(~np.isfinite(values[:, j])) != column.null_count:
            raise Unsuited
    return values
