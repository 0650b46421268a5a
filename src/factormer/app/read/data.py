"""Data that were read: a matrix V, and what its rows and columns stand for."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from factormer.app.read.mutations import order_of
from factormer.data import checked
from factormer.data.intake import is_sparse

_NO_NOUNS = (
    "ids",
    "indexs",
    "labels",
    "names",
)  # list names that do not say of what


class DataError(ValueError):
    """A file with wrong contents; the message needs no context."""


@dataclass(frozen=True)
class Axis:
    """The rows or the columns of V: how many, what one is called, and how all are drawn.

    A `grid` (height, width) says that they are the pixels of an image, row by row; `positions` that
    they are points on a line, such as frequencies; `is_ordered` that neighbours belong together.
    """

    size: int
    noun: str
    labels: tuple[str, ...] | None = None
    grid: tuple[int, int] | None = None
    positions: tuple[float, ...] | None = None
    unit: str = ""
    is_ordered: bool = False

    def __post_init__(self) -> None:
        if self.grid is not None and math.prod(self.grid) != self.size:
            height, width = self.grid
            raise ValueError(
                f"an image of {height}×{width} has {height * width} pixels, but V has {self.size} "
                f"{self.nouns}; choose a height and a width whose product is {self.size}"
            )
        for name, values in (("labels", self.labels), ("positions", self.positions)):
            if values is not None and len(values) != self.size:
                raise ValueError(
                    f"there are {len(values)} {name} for {self.size} {self.nouns} of V; "
                    "there must be one for each, in order"
                )

    @property
    def nouns(self) -> str:
        """Return the name of several entries."""
        ends_in_y = re.search("[^aeiou]y$", self.noun)
        return f"{self.noun[:-1]}ies" if ends_in_y else f"{self.noun}s"

    @property
    def kind(self) -> str:
        """How a vector is drawn: "image", "line", "mutations" (96 types), "labels" or "plain"."""
        if self.grid is not None:
            return "image"
        if self.positions is not None or self.is_ordered:
            return "line"
        if order_of(self.labels) is not None:
            return "mutations"
        return "plain" if self.labels is None else "labels"

    def name(self, i: int) -> str:
        """Entry i in words; people count from 1."""
        if self.labels is not None:
            return self.labels[i]
        if self.positions is not None:
            return f"{self.positions[i]:.4g} {self.unit}".strip()
        if self.grid is not None:
            y, x = divmod(i, self.grid[1])
            return f"pixel ({y + 1}, {x + 1})"
        return f"{self.noun} {i + 1}"

    def __str__(self) -> str:
        """In words: how many, and their first and last labels."""
        count = f"{self.size} {self.nouns if self.size > 1 else self.noun}"
        if self.grid is not None:
            return f"{count} of {self.grid[0]}×{self.grid[1]}"
        if self.positions is not None:
            ends = [f"{self.positions[k]:.4g} {self.unit}".strip() for k in (0, -1)]
            return f"{count} from {ends[0]} to {ends[1]}"
        if self.labels is None:
            return f"{count} without labels"
        return f"{count}: {_few(self.labels)}"

    def labelled(self, labels: Sequence[str], called: str = "") -> Axis:
        """Return the axis with labels; increasing or decreasing numbers make it a line.

        `called` is the name of their list: "genes" makes each a gene.
        """
        names = tuple(labels)
        axis = replace(self, labels=names)
        if re.fullmatch(r"[a-z]{3,20}s", called.lower()) and called.lower() not in _NO_NOUNS:
            axis = replace(axis, noun=called[:-1].lower())
        if order_of(names) is not None:
            return replace(axis, noun="mutation type")
        if len(names) < 8 or self.grid is not None or not rises(names):
            return axis
        return replace(axis, positions=tuple(map(float, names)))

    def drawn_as(self, text: str) -> Axis:
        """The axis as the user says that it is: HEIGHTxWIDTH, "line", "labels", or what it holds.

        "tumours" makes each a tumour.
        """
        if match := re.fullmatch(r"(\d{1,9})[x×](\d{1,9})", text):
            return replace(self, grid=(int(match[1]), int(match[2])))
        if text == "line":
            return replace(self, is_ordered=True, grid=None)
        if text == "labels":
            return replace(self, is_ordered=False, grid=None, positions=None)
        if re.fullmatch(r"[^\W\d_][^\W\d_ -]*([ -][^\W\d_]+)*s", text) and len(text) <= 30:
            ends_in_y = text.endswith("ies")
            return replace(self, noun=f"{text[:-3]}y" if ends_in_y else text[:-1])
        raise ValueError(
            f"{self.nouns} cannot be drawn as {text!r}; choose HEIGHTxWIDTH for the pixels of an "
            "image (64x64), 'line' for a spectrum or a series, 'labels', or what they are, in the "
            "plural (tumours)"
        )


@dataclass(frozen=True, eq=False)
class Data:
    """A matrix V (m, n), dense or sparse, with its two axes and what it was read from."""

    V: Any
    rows: Axis
    columns: Axis
    name: str
    source: str

    @classmethod
    def of(cls, V: Any) -> Data:
        """A matrix without labels."""
        return cls(V, Axis(V.shape[0], "row"), Axis(V.shape[1], "column"), "", "")

    @property
    def n_unknown(self) -> int:
        """Entries that are not known; those that a sparse V does not store are zeros."""
        return 0 if is_sparse(self.V) else int(np.isnan(self.V).sum())

    def __str__(self) -> str:
        """Say what was understood: size, format, labels, and what is not known."""
        m, n = self.V.shape
        text = f"{self.name} {m}×{n}: {self.source}"
        if not {self.rows.noun, self.columns.noun} & {"row", "column"}:
            size = f"{m} {self.rows.nouns} × {n} {self.columns.nouns}"
            text = f"{self.name}: {size}; {self.source}"
        text += f"\n  rows: {self.rows}\n  columns: {self.columns}"
        return f"{text}\n  not known: {k} of {m * n} entries" if (k := self.n_unknown) else text

    def transposed(self) -> Data:
        """Rows for columns and columns for rows."""
        V = self.V.T.tocsr() if is_sparse(self.V) else np.ascontiguousarray(self.V.T)
        return replace(self, V=V, rows=self.columns, columns=self.rows)

    def checksum(self) -> str:
        """Of the numbers and their positions, whichever file they came from."""
        digest = hashlib.sha256(repr((self.V.shape, str(self.V.dtype))).encode())
        parts = [self.V.data, self.V.indices, self.V.indptr] if is_sparse(self.V) else [self.V]
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


def matrix(values: Any, path: Path) -> Any:
    """Two axes of real numbers: a csr array, or a dense one in float32 or float64."""
    if scipy.sparse.issparse(values):
        values = scipy.sparse.csr_array(checked(values, str(path)))
    if values.dtype.kind not in "biuf":
        raise DataError(f"{path} holds {values.dtype} values; it must hold real numbers")
    if values.ndim != 2:
        raise DataError(f"{path} holds an array of {values.ndim} axes; a matrix has two")
    if 0 in values.shape:
        raise DataError(f"{path} holds no entries: its shape is {values.shape}")
    single = values.dtype in (np.float16, np.float32)
    values = values.astype(np.float32 if single else np.float64)
    return values if scipy.sparse.issparse(values) else np.ascontiguousarray(values)


def _few(labels: Sequence[str], width: int = 24) -> str:
    """The first ones and the last, each shortened."""
    shown = labels if len(labels) <= 4 else [*labels[:2], "…", labels[-1]]
    return ", ".join(x if len(x) <= width else f"{x[: width - 1]}…" for x in shown)


def plain(values: Any, path: Path, source: str) -> Data:
    """A matrix without labels."""
    V = matrix(values, path)
    rows, columns = Axis(V.shape[0], "row"), Axis(V.shape[1], "column")
    return Data(V, rows, columns, stem(path), source)


def stem(path: Path) -> str:
    """The name of a file without its suffix."""
    name = path.name.removesuffix(".gz")
    return name if path.is_dir() else Path(name).stem


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a parser raises on a broken file into one sentence."""
    try:
        yield
    except (ImportError, FileNotFoundError, PermissionError, DataError):
        raise
    except MemoryError as error:
        raise MemoryError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except Exception as error:  # parsers raise anything, struct.error and KeyError too
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} could not be read as {what}: {reason}") from error


@contextmanager
def reading_numbers() -> Iterator[None]:
    """Say what is wrong with an array that numpy refuses; numpy advises to trust the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(
            "it is damaged, or holds Python objects; it must hold only numbers"
        ) from error


def rises(texts: Sequence[str]) -> bool:
    """Whether these are increasing or decreasing numbers."""
    try:
        steps = np.diff([float(text) for text in texts])
    except ValueError:
        return False
    return bool((steps > 0).all() or (steps < 0).all()) and bool(np.isfinite(steps).all())
