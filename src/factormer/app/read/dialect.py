"""How a table is written: what separates its cells, and what its numbers look like."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

ABSENT = {"", "na", "n/a", "nan", "null", "none", "-"}
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
_UNFIT = (0.0, 0, 0)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
_ALMOST = re.compile(
    r"[+-]?(\d{1,3}(_\d{3})+(\.\d*)?|\d+(,\d+)+(\.\d*)?|0x[0-9a-f]+)", re.IGNORECASE
)


class Dialect(NamedTuple):
    """The mark that separates cells, and the one before the decimals of a number."""

    separator: str
    point: str = "."

    def __str__(self) -> str:
        text = f"separated by {_NAMES[self.separator]}"
        return text if self.point == "." else f"{text}, with decimal commas"

    def cells(self, lines: Iterable[str], before: int = 0) -> list[tuple[int, list[str]]]:
        """The number of each line that is not blank, counted after those `before`, and its cells.

        Any run of blanks and tabs is one separator.
        """
        is_blank = self.separator == " "
        if is_blank:
            lines = (line.replace("\t", " ").strip() + "\n" for line in lines)
        reader = csv.reader(lines, delimiter=self.separator, skipinitialspace=is_blank)
        return [(before + reader.line_num, cells) for cells in reader if not _is_blank(cells)]

    def number(self, cell: str) -> float | None:
        """The number in a cell, NaN for an unknown one, None for what is not a number.

        Commas may set off thousands where they are not the mark before decimals.
        """
        text = cell.strip()
        if text.lower() in ABSENT:
            return math.nan
        if "_" in text or (self.point == "," and "." in text):  # Python reads 1_2 as 12
            return None
        try:
            return float(text.replace(self.point, "."))
        except ValueError:
            return float(text.replace(",", "")) if self._is_grouped(text) else None

    def is_number(self, cell: str) -> bool:
        """Whether a cell was meant as a number, even one that `number` refuses: 1_000."""
        return self.number(cell) is not None or is_almost(cell)

    def _is_grouped(self, text: str) -> bool:
        return self.point == "." and _GROUPED.fullmatch(text) is not None

    def fitness(self, sample: list[str]) -> tuple[float, int, int]:
        """Share of lines of the usual length, times that of numbers in them; 0 for single cells.

        Ties are broken by the numbers in the first line, which may be a header, then by how few
        commas would separate thousands: 1,234 is read as a decimal number where possible.
        """
        try:
            lines = [cells for _, cells in self.cells(sample)]
        except csv.Error:  # a line without this separator, longer than any cell may be
            return _UNFIT
        body = lines[1:] or lines  # a header has no numbers, and may lack a cell
        width, count = Counter(map(len, body)).most_common(1)[0] if body else (1, 0)
        if width == 1:
            return _UNFIT
        cells = [cell for line in body if len(line) == width for cell in line]
        numbers, in_first = (
            sum(self.number(cell) is not None for cell in part) for part in (cells, lines[0])
        )
        grouped = sum(self._is_grouped(cell.strip()) for line in lines for cell in line)
        return count / len(body) * numbers / len(cells), in_first, -grouped


BLANKS = Dialect(" ")
DIALECTS = (
    *(Dialect(","), Dialect("\t"), Dialect(";"), Dialect(";", ",")),
    *(Dialect("\t", ","), Dialect("|")),
)
SEPARATORS = "commas, semicolons, tabs, bars (|) or blanks"


def is_almost(cell: str) -> bool:
    """Whether a cell may be a number or a name: 1_000, 0x10 and 1,00."""
    return _ALMOST.fullmatch(cell.strip()) is not None


def detect(sample: list[str], usual: Dialect) -> Dialect:
    """The dialect in which most lines are equally long and most cells are numbers.

    Names may contain blanks, so blanks separate only where nothing else does.
    """
    fitness = {dialect: dialect.fitness(sample) for dialect in (usual, *DIALECTS)}
    best = max(fitness, key=lambda dialect: fitness[dialect])
    return best if fitness[best][0] or not BLANKS.fitness(sample)[0] else BLANKS


def _is_blank(cells: list[str]) -> bool:
    """Whether a line has no cells; one that holds "" alone is a number that is not known."""
    return not cells or (len(cells) == 1 and cells[0].isspace())
