"""How a table begins: the comments before it, how it is written, and where its first line is."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from factormer.app.read.dialect import Dialect, detect

_SAMPLE = 50  # lines from which the dialect is detected
_CHARACTERS = 1 << 20  # of these lines, where they are long; a few lines in any case
_FEW = 4


class Opening(NamedTuple):
    """The first lines of a file: the dialect, the number of comments, and a few other lines.

    `is_marked`: the first of these had a # before it, which is not in the sample.
    """

    dialect: Dialect
    skipped: int
    sample: list[str]
    is_marked: bool = False


def opened(path: Path, mode: str) -> Any:
    """The file, unpacked if necessary, as text without a byte order mark."""
    open_: Any = gzip.open if path.suffix == ".gz" else open
    options: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8-sig", "newline": ""}
    return open_(path, mode, **options)


@contextmanager
def lines_of(path: Path, opening: Opening) -> Iterator[Iterator[str]]:
    """The lines of a table from the first that counts, without the # before its header."""
    file: IO[str]
    with opened(path, "rt") as file:
        rest = islice(file, opening.skipped, None)
        yield chain(map(unmarked, islice(rest, opening.is_marked)), rest)


def opening_of(path: Path, *, header: bool | None = None) -> Opening:
    """Look at the beginning of a file. A .tsv has tabs unless its lines show otherwise."""
    is_tabbed = path.name.removesuffix(".gz").lower().endswith(".tsv")
    usual = Dialect("\t" if is_tabbed else ",")
    with opened(path, "rt") as file:
        comments, first = _comments(file)
        sample = _some(chain(first, file))
        if not sample:  # every line begins with #: these are names
            file.seek(0)
            comments, sample = [], _some(file)
    dialect = detect(sample, usual)
    at = max((k for k, line in enumerate(comments) if line.strip()), default=None)
    if at is None or header is False or not _is_header(comments[at], sample, dialect):
        return Opening(dialect, len(comments), sample)
    return Opening(dialect, at, [unmarked(comments[at]), *sample], is_marked=True)


def unmarked(line: str) -> str:
    """A first line without the # that some programs put before it; a lone # is a name itself."""
    bare = line.lstrip("# ") if line.startswith("#") else line
    return bare if bare[:1] not in (",", ";", "\t", "|", "\r", "\n", "") else line


def _comments(file: Iterator[str]) -> tuple[list[str], list[str]]:
    """The lines that begin with # or are blank, up to the first other one; and that one."""
    comments: list[str] = []
    for line in file:
        if line.strip() and not line.startswith("#"):
            return comments, [line]
        comments.append(line)
    return comments, []


def _some(lines: Iterator[str]) -> list[str]:
    sample: list[str] = []
    n_characters = 0
    for line in islice(lines, _SAMPLE):
        sample.append(line)
        n_characters += len(line)
        if n_characters > _CHARACTERS and len(sample) >= _FEW:
            break
    return sample


def _is_header(comment: str, sample: list[str], dialect: Dialect) -> bool:
    """Whether the last comment names the columns: as many words as there are cells in a line.

    Some programs mark the header by #. Not where a header follows, or the words are numbers.
    """
    words, *_ = [cells for _, cells in dialect.cells([unmarked(comment)])] or [[]]
    first, *_ = [cells for _, cells in dialect.cells(sample)] or [[]]
    fits = len(words) > 1 and len(words) in (len(first), len(first) - 1)
    follows_header = not all(map(dialect.is_number, first[1:]))
    return fits and not follows_header and not all(map(dialect.is_number, words))
