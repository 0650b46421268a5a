"""Ratings as they are usually stored: a line for each, with a user, an item and a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from factormer.app.read.data import Axis, Data, DataError, matrix, reading, stem
from factormer.app.read.opening import lines_of, opening_of

LAYOUT = "ratings"


def read_ratings(path: Path, *, layout: str, header: bool | None = None) -> Data:
    """Users × items, sparse, from the first three columns of a table; others are left out.

    Of several ratings of one item by one user the last counts. Names are in the order of their
    first rating.
    """
    with reading(path, "a table of ratings"):
        opening = opening_of(path, header=header)
        dialect = opening.dialect
        users: dict[str, int] = {}
        items: dict[str, int] = {}
        found: dict[tuple[int, int], float] = {}
        names, count = ["user", "item"], 0
        with lines_of(path, opening) as lines:
            for number, cells in dialect.cells(lines, opening.skipped):
                if len(cells) < 3:
                    raise DataError(
                        f"{path}, line {number}, has {len(cells)} cells; a rating has three: user, "
                        "item and number"
                    )
                user, item, cell = (cell.strip() for cell in cells[:3])
                value = dialect.number(cell)
                if value is None or np.isnan(value):
                    if not count and header is not False and not users:
                        names, header = [user, item], False
                        continue
                    raise DataError(
                        f"{path}, line {number}, has the rating {cell[:40]!r}; it must be a number"
                    )
                at = (users.setdefault(user, len(users)), items.setdefault(item, len(items)))
                found[at] = value
                count += 1
    if not found:
        raise DataError(f"{path} holds no rating; each line has a user, an item and a number")
    return _data(path, users, items, found, names, count)


def _data(path: Path, users: Any, items: Any, found: Any, names: list[str], count: int) -> Data:
    rows, columns = np.array(list(found), dtype=np.int64).T
    values = np.array(list(found.values()), dtype=np.float64)
    V = scipy.sparse.csr_array((values, (rows, columns)), shape=(len(users), len(items)))
    again = count - len(found)
    source = f"table of {len(found)} ratings" + (
        f", the last of {again} repeated ones" * (again > 0)
    )
    sides: list[Axis] = []
    for labels, name, usual in zip((users, items), names, ("user", "item"), strict=True):
        noun = name.lower().removesuffix("_id").removesuffix("id").strip() or usual
        sides.append(Axis(len(labels), noun if noun.isalpha() else usual, labels=tuple(labels)))
    return Data(matrix(V, path), sides[0], sides[1], stem(path), source)
