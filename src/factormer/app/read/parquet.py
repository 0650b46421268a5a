"""Tables of columns: .parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from factormer.app.read.data import Data, DataError, plain, reading
from factormer.app.read.optional import require

_UNNAMED = "__index_level_0__"  # what pandas calls an index without a name


def read_parquet(path: Path, *, index: bool | None = None) -> Data:
    """The numeric columns; a column of strings, and pandas' index, names the rows.

    `index` says whether the first column does, regardless of its type.
    """
    parquet = require("pyarrow.parquet", path)
    types = require("pyarrow.types", path)
    with reading(path, "a parquet file"):
        table = parquet.read_table(path)
        indices = {_UNNAMED, *_pandas_index(table)}
        texts, numbers = [], []
        for k, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
            is_text = types.is_string(column.type) or types.is_large_string(column.type)
            is_text = is_text or types.is_dictionary(column.type)
            names = index is not False and (name in indices or (k == 0 and index is True))
            (texts if is_text or names else numbers).append((name, column))
        if len(texts) > 1 or not numbers:
            raise DataError(
                f"{path} has the columns of labels {[name for name, _ in texts]} and "
                f"{len(numbers)} of numbers; it may have one that names the rows, and must have "
                "one of numbers"
            )
        columns = [np.asarray(column.to_numpy()) for _, column in numbers]
        for (name, column), values in zip(numbers, columns, strict=True):
            if values.dtype.kind not in "biuf":
                raise DataError(
                    f"{path}, column {name!r}, holds {column.type}; it must hold numbers"
                )
        values = np.stack([column.astype(np.float64) for column in columns], axis=1)
    labels = f"; labels in the column {texts[0][0]!r}" if texts else ""
    data = plain(values, path, f"parquet table{labels}")
    rows, columns_ = data.rows, data.columns.labelled([name for name, _ in numbers])
    if texts:
        name = texts[0][0].strip().removesuffix("s")
        rows = rows.labelled([str(value) for value in texts[0][1].to_pylist()], f"{name}s")
    return Data(data.V, rows, columns_, data.name, data.source)


def _pandas_index(table: Any) -> list[str]:
    """The columns that were the index of a data frame; a range index is not a column."""
    said = (table.schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in said if isinstance(name, str)]
