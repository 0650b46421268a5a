"""Tables with labels: .csv, .tsv and .parquet."""

from __future__ import annotations

import csv
import gzip
import math
from pathlib import Path

import numpy as np

from factormer.read.data import Data, DataError, plain, reading
from factormer.read.optional import require

_ABSENT = {"", "na", "n/a", "nan", "null", "none", "-"}


def read_table(path: Path, *, key: str | None, layout: str | None) -> Data:
    """Comma- or tab-separated numbers; a first row and a first column of names are labels.

    The first row is a header where one of its cells after the first is no number, or where its
    first cell is empty. Empty cells and NA are entries that are not known.
    """
    is_tabbed = path.name.removesuffix(".gz").endswith((".tsv", ".txt"))
    opened = gzip.open if path.suffix == ".gz" else open
    with (
        reading(path, "a table"),
        opened(path, "rt", encoding="utf-8-sig", newline="") as file,
    ):
        lines = [line for line in csv.reader(file, delimiter="\t" if is_tabbed else ",") if line]
        if not lines:
            raise DataError(f"{path} is empty; it must be a table of numbers")
        first = [_number(cell) for cell in lines[0]]
        has_header = (len(first) > 1 and not lines[0][0].strip()) or None in first[1:]
        has_header = has_header or (len(first) == 1 and first[0] is None)
        header, body = (lines[0], lines[1:]) if has_header else (None, lines)
        if not body:
            raise DataError(f"{path} has a header and no rows; it must be a table of numbers")
        has_names = any(_number(line[0]) is None for line in body) or _is_index(header)
        values = np.array(
            [
                _row(line, has_names, k, len(body[0]), path)
                for k, line in enumerate(body, 2 if has_header else 1)
            ]
        )
    data = plain(values, path, "table")
    rows, columns = data.rows, data.columns
    if has_names:
        called = _called(header[0]) if header and len(header) == len(body[0]) else ""
        rows = rows.labelled([line[0].strip() for line in body], called)
    if header is not None:
        names = [name.strip() for name in header]
        # Tables written by R name the columns alone.
        columns = columns.labelled(names if len(names) == columns.size else names[has_names:])
    return Data(data.V, rows, columns, data.name, data.source)


def _is_index(header: list[str] | None) -> bool:
    """Whether the first column has no name though others have: what pandas calls the index."""
    return header is not None and len(header) > 1 and not header[0].strip()


def _called(head: str) -> str:
    """What the rows are called, from the head of their names: "sample" makes them samples."""
    return f"{head.strip().removesuffix('s')}s"


def _row(line: list[str], has_name: bool, number: int, width: int, path: Path) -> list[float]:
    if len(line) != width:
        raise DataError(
            f"{path}, line {number}, has {len(line)} cells where others have {width}; "
            "every line must have as many"
        )
    cells = line[1:] if has_name else line
    values = [_number(cell) for cell in cells]
    if None in values:
        at = values.index(None)
        raise DataError(
            f"{path}, line {number}, column {at + 1 + has_name}, is {cells[at]!r}; it must be a "
            "number, or empty where it is not known"
        )
    return [math.nan if value is None else value for value in values]


def _number(cell: str) -> float | None:
    """The number in a cell, NaN for none known, None for what is no number."""
    text = cell.strip()
    if text.lower() in _ABSENT:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return None


def read_parquet(path: Path, *, key: str | None, layout: str | None) -> Data:
    """The numeric columns; a column of strings, if there is one, names the rows."""
    parquet = require("pyarrow.parquet", path)
    types = require("pyarrow.types", path)
    with reading(path, "a parquet file"):
        table = parquet.read_table(path)
        texts, numbers = [], []
        for name, column in zip(table.column_names, table.columns, strict=True):
            is_text = types.is_string(column.type) or types.is_large_string(column.type)
            is_text = is_text or types.is_dictionary(column.type)
            (texts if is_text else numbers).append((name, column))
        if len(texts) > 1 or not numbers:
            raise DataError(
                f"{path} has the text columns {[name for name, _ in texts]} and {len(numbers)} of "
                "numbers; it may have one that names the rows, and must have one of numbers"
            )
        columns = [np.asarray(column.to_numpy()) for _, column in numbers]
        for (name, column), values in zip(numbers, columns, strict=True):
            if values.dtype.kind not in "biuf":
                raise DataError(
                    f"{path}, column {name!r}, holds {column.type}; it must hold numbers"
                )
        values = np.stack([column.astype(np.float64) for column in columns], axis=1)
    data = plain(values, path, "parquet table")
    rows, columns_ = data.rows, data.columns.labelled([name for name, _ in numbers])
    if texts:
        rows = rows.labelled(
            [str(value) for value in texts[0][1].to_pylist()], _called(texts[0][0])
        )
    return Data(data.V, rows, columns_, data.name, data.source)
