"""How a table is written: what separates its cells, and what its numbers look like."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_ABSENT = {"", "na", "n/a", "nan", "null", "none", "-"}
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


class Dialect(NamedTuple):
    """What separates cells, and the mark before the decimals of a number."""

    separator: str
    point: str = "."

    def __str__(self) -> str:
        text = f"separated by {_NAMES[self.separator]}"
        return text if self.point == "." else f"{text}, with decimal commas"

    def cells(self, lines: Iterable[str]) -> list[tuple[int, list[str]]]:
        """The number of each line that is not blank, counted from 1, and its cells."""
        reader = csv.reader(lines, delimiter=self.separator)
        return [(reader.line_num, cells) for cells in reader if not _is_blank(cells)]

    def number(self, cell: str) -> float | None:
        """The number in a cell, NaN for none known, None for what is no number."""
        text = cell.strip()
        if text.lower() in _ABSENT:
            return math.nan
        if "_" in text or (self.point == "," and "." in text):  # python takes 1_2 for 12
            return None
        try:
            return float(text.replace(self.point, "."))
        except ValueError:
            return None


DIALECTS = (
    *(Dialect(","), Dialect("\t"), Dialect(";"), Dialect(";", ",")),
    *(Dialect("\t", ","), Dialect("|")),
)
SEPARATORS = "commas, semicolons, tabs or bars (|)"


def detect(sample: list[str], usual: Dialect) -> Dialect:
    """The dialect in which most lines are equally long and most cells are numbers."""
    if not sample:
        return usual
    return max((usual, *DIALECTS), key=lambda dialect: _fitness(sample, dialect))


def _is_blank(cells: list[str]) -> bool:
    """Whether a line has no cells; one that holds "" alone is a number that is not known."""
    return not cells or (len(cells) == 1 and cells[0].isspace())


def _fitness(sample: list[str], dialect: Dialect) -> float:
    """Share of lines of the usual length, times that of numbers in them; 0 for single cells."""
    lines = [cells for _, cells in dialect.cells(sample)]
    lines = lines[1:] or lines  # a header has no numbers, and may lack a cell
    if not lines:
        return 0.0
    width, count = Counter(map(len, lines)).most_common(1)[0]
    if width == 1:
        return 0.0
    cells = [cell for line in lines if len(line) == width for cell in line]
    numbers = sum(dialect.number(cell) is not None for cell in cells)
    return count / len(lines) * numbers / len(cells)
