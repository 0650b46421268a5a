"""Vectors and maps made small enough to travel inside a page.

Numbers go as bytes in base64: 256 levels for what is looked at as an image, 65 536 for lines.
"""

from __future__ import annotations

import base64
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from factormer.app.read import Axis
from factormer.app.read.mutations import order_of

_LABEL = 80  # characters of a label that are shown
_LABELS = 2000  # at most, beside those of the entries that are listed
_SORTED = 200  # points of a line that falls throughout
_HEAVIEST = 30  # entries of a component, at least, among which the most specific are listed
_HEAVY = 0.1  # of its peak, from where on an entry is among them too
_IN_ORDER = 0.3  # of the squares of differences that shuffled entries have


def packed(values: Float[np.ndarray, "..."], *, depth: int = 8) -> dict[str, Any]:
    """Values between their least and their greatest; the level 0 is kept for NaN."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    top = 2**depth - 1
    span = high - low
    levels = np.full(values.shape, 1.0) if not span else 1 + (values - low) / span * (top - 1)
    levels = np.where(np.isfinite(values), levels, 0).round()
    raw = levels.astype("<u2" if depth == 16 else np.uint8).tobytes()
    return {"bits": depth, "low": low, "high": high, "data": base64.b64encode(raw).decode()}


def shrunk(image: Float[np.ndarray, "h w"], cap: int) -> Float[np.ndarray, "p q"]:
    """The image by means over squares, so that it has about `cap` pixels at most."""
    h, w = image.shape
    step = max(1, math.ceil(math.sqrt(h * w / max(cap, 1))))
    if step == 1:
        return image
    return squeezed(image, math.ceil(h / step), math.ceil(w / step))


def squeezed(image: Float[np.ndarray, "h w"], height: int, width: int) -> np.ndarray:
    """Means over height × width rectangles, as even as can be; what is NaN does not count."""
    h, w = image.shape
    rows = np.linspace(0, h, min(height, h) + 1).round().astype(int)[:-1]
    columns = np.linspace(0, w, min(width, w) + 1).round().astype(int)[:-1]

    def sums(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1)

    known = np.isfinite(image)
    with np.errstate(invalid="ignore"):
        return sums(np.where(known, image, 0.0)) / sums(known.astype(np.float64))


@dataclass(frozen=True)
class Reduction:
    """How vectors over one axis are shown: as an image, or as at most `cap` points of a line.

    Where neighbours need not belong together, values are sorted, the greatest first.
    """

    axis: Axis
    cap: int

    @property
    def is_sorted(self) -> bool:
        """Whether the order of the axis means nothing."""
        return self.axis.kind in ("labels", "plain")

    @property
    def _edges(self) -> np.ndarray:
        n = min(self.axis.size, max(min(self.cap, _SORTED) if self.is_sorted else self.cap, 2))
        if self.is_sorted:
            return np.linspace(0, self.axis.size - 1, n).round().astype(int)
        return np.linspace(0, self.axis.size, n + 1).round().astype(int)[:-1]

    def __call__(self, x: Float[np.ndarray, " n"]) -> dict[str, Any]:
        """The vector, as bytes; of the points of a line that fall together the greatest is kept."""
        if self.axis.grid is not None:
            return packed(shrunk(x.reshape(self.axis.grid), self.cap))
        if self.is_sorted:
            return packed(-np.sort(-x)[self._edges], depth=16)  # what is not known comes last
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return packed(np.fmax.reduceat(x, self._edges), depth=16)

    def described(self) -> dict[str, Any]:
        """Return what the page needs to draw vectors over this axis."""
        axis = self.axis
        about: dict[str, Any] = {
            "kind": axis.kind,
            "noun": axis.noun,
            "size": axis.size,
            "unit": axis.unit,
            "sorted": self.is_sorted,
        }
        if axis.grid is not None:
            small = shrunk(np.zeros(axis.grid), self.cap).shape
            return {**about, "grid": list(axis.grid), "shown": list(small)}
        edges = self._edges
        about["first"] = [int(i) for i in edges]
        if axis.positions is not None:
            about["positions"] = [float(f"{axis.positions[i]:.6g}") for i in edges]
        if (order := order_of(axis.labels)) is not None and axis.kind == "mutations":
            about["mutations"] = {"order": order}
        if axis.labels is not None and axis.size <= _LABELS:
            about["labels"] = [_cut(label) for label in axis.labels]
        return about


def top(x: Float[np.ndarray, " n"], axis: Axis, count: int) -> list[list[Any]]:
    """Names and values of the greatest entries that are above zero."""
    x = np.where(np.isfinite(x), x, -np.inf)
    count = min(count, len(x))
    best = np.argpartition(-x, count - 1)[:count]
    best = best[np.argsort(-x[best], kind="stable")]
    return [[_cut(axis.name(int(i))), significant(float(x[i]))] for i in best if x[i] > 0]


def specificities(X: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "n r"]:
    """How far each entry belongs to one component alone: its share in all, each of sum 1.

    1 for an entry that no other component has; 1/r for one that all have alike.
    """
    X = np.abs(X)
    for axis in (0, 1):
        peak = X.max(axis=axis, keepdims=True)  # divided by first, so that sums are finite
        X = X / np.where(peak > 0, peak, 1.0)
        total = X.sum(axis=axis, keepdims=True)
        X = X / np.where(total > 0, total, 1.0)
    return X


def telling(
    x: Float[np.ndarray, " n"], specificity: Float[np.ndarray, " n"], axis: Axis, count: int
) -> list[list[Any]]:
    """Names, specificities and loadings of the entries that set a component apart.

    The most specific of the heaviest ones come first; equally specific ones by their loading, which
    is relative to the peak.
    """
    peak = float(x.max(initial=0.0)) or 1.0
    heaviest = np.argsort(-x, kind="stable")
    heaviest = heaviest[: max(_HEAVIEST, int((x >= _HEAVY * peak).sum()))]
    heaviest = heaviest[x[heaviest] > 0]
    shown = specificity.round(2)
    order = np.lexsort((-x[heaviest], -shown[heaviest]))
    return [
        [_cut(axis.name(int(i))), float(shown[i]), significant(float(x[i]) / peak, 3)]
        for i in heaviest[order[:count]]
    ]


def in_order(axis: Axis, X: Float[np.ndarray, "n r"]) -> Axis:
    """The axis, ordered where nobody said so and yet neighbours are alike in most components."""
    if axis.kind != "plain" or axis.size < 16:
        return axis
    X = X / (np.abs(X).max(axis=0) + np.finfo(np.float64).tiny)  # so that squares are finite
    squares = ((X - X.mean(axis=0)) ** 2).sum(axis=0)
    steps = (np.diff(X, axis=0) ** 2).sum(axis=0) / 2  # as large as the squares if shuffled
    is_smooth = bool(np.median(steps - _IN_ORDER * squares) < 0)
    return replace(axis, is_ordered=True) if is_smooth else axis


def significant(number: float, digits: int = 5) -> float:
    """The number, rounded to some digits."""
    return float(f"{float(number):.{digits}g}")


def thinned(rows: Sequence[Any], count: int) -> list[Any]:
    """At most `count` rows, the first and the last among them, denser at the beginning."""
    if len(rows) <= count:
        return list(rows)
    at = np.geomspace(1, len(rows), count).round().astype(int) - 1
    even = np.linspace(0, len(rows) - 1, count // 2).round().astype(int)
    return [rows[i] for i in np.unique(np.concatenate([at[: count // 2], even, [len(rows) - 1]]))]


def _cut(label: str) -> str:
    return label if len(label) <= _LABEL else label[: _LABEL - 1] + "…"
