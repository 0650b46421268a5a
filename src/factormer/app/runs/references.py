"""Components beside reference components, such as known signatures or measured spectra."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from factormer.app.read import Axis, Data
from factormer.app.runs.folder import RunFolder
from factormer.app.runs.stored import damaged
from factormer.data.files import write
from factormer.data.intake import is_sparse

_CLOSE = 0.8  # the least cosine at which a component counts as its reference


class References(NamedTuple):
    """Named reference components over one side of V: "rows", with W, or "columns", with H.

    `by` says how they were laid along it: by "labels", or by "order" where there are none.
    """

    side: str
    names: tuple[str, ...]
    values: Float[np.ndarray, "n k"]
    by: str = "labels"


class Pair(NamedTuple):
    """A component, its reference under the best pairing (or none), and the one it is most like.

    `str` says it in words, where a cosine below 0.8 makes no reference.
    """

    component: int
    reference: str | None
    cosine: float | None
    nearest: str
    nearest_cosine: float

    def __str__(self) -> str:
        nearest = f"nearest {self.nearest}, cosine {self.nearest_cosine:.3f}"
        if self.nearest_cosine < _CLOSE:
            return f"no close reference ({nearest})"
        if self.cosine is None or self.cosine < _CLOSE:
            return f"no close reference left ({nearest}, which another component has)"
        text = f"{self.reference}, cosine {self.cosine:.3f} ({self.angle:.1f}°)"
        return text if self.nearest == self.reference else f"{text}; {nearest}"

    @property
    def angle(self) -> float | None:
        """Between component and reference, in degrees."""
        return None if self.cosine is None else math.degrees(math.acos(min(self.cosine, 1.0)))


def references(found: Data, data: Data) -> References:
    """The reference components of a file, in the order of the rows or columns that they fit.

    By labels where both files have them, in any order. By order alone, on a side of the same size,
    only where one of the two files has no labels there. Labels that differ are refused.
    """
    V = found.V.toarray() if is_sparse(found.V) else found.V
    if not np.isfinite(V).all():
        raise ValueError(
            f"the reference components of {found.name} have unknown entries; fill them"
        )
    sides = (("columns", data.columns), ("rows", data.rows))
    turns = ((V, found.rows, found.columns), (V.T, found.columns, found.rows))
    fits = [_Fit(*side, *turn) for side in sides for turn in turns]
    labelled = sorted((fit for fit in fits if fit.has_labels), key=_Fit.strangeness)
    unlabelled = [fit for fit in fits if not fit.has_labels and fit.is_of_one_size]
    best = labelled[0] if labelled else None
    if best is not None and not best.missing():
        return best.by_labels(found.name)
    if best is not None and best.is_meant(alone=not unlabelled):
        missing, axis = best.missing(), best.axis
        raise ValueError(
            f"--compare {found.name} lacks {missing[0]!r} among its labels, {len(missing)} of the "
            f"{axis.size} {axis.nouns} of V in all; it must have each of them, in any order"
        )
    if unlabelled:
        return unlabelled[0].by_order()
    raise ValueError(
        f"--compare {found.name} is {found.rows.size}×{found.columns.size}, and neither side is "
        f"the {data.columns.size} {data.columns.nouns} or the {data.rows.size} {data.rows.nouns} "
        "of V; it must hold a value of each reference for each of these"
    )


class _Fit(NamedTuple):
    """One way to lay reference components along V: over its rows or columns, turned or not."""

    side: str
    axis: Axis
    values: Any
    features: Axis
    names: Axis

    @property
    def has_labels(self) -> bool:
        return self.features.labels is not None and self.axis.labels is not None

    @property
    def is_of_one_size(self) -> bool:
        return self.features.size == self.axis.size

    def strangeness(self) -> tuple[float, bool]:
        """The share of labels that are missing, and whether the sizes differ: least comes first."""
        return len(self.missing()) / self.axis.size, not self.is_of_one_size

    def is_meant(self, *, alone: bool) -> bool:
        """Whether labels are those of this side, though not all: half of them, or one of as many.

        Where no other side fits (`alone`), one of them, or a side of the same size, is enough.
        """
        shared = self.axis.size - len(self.missing())
        if 2 * shared >= self.axis.size or (shared and self.is_of_one_size):
            return True
        return alone and (shared > 0 or self.is_of_one_size)

    def missing(self) -> list[str]:
        """The labels of V that the references lack, in the order of V."""
        mine, theirs = self._keys()
        known = set(theirs)
        return [
            label
            for label, key in zip(self.axis.labels or (), mine, strict=True)
            if key not in known
        ]

    def by_labels(self, name: str) -> References:
        mine, theirs = self._keys()
        counts, wanted = Counter(theirs), set(mine)
        for label, key in zip(self.features.labels or (), theirs, strict=True):
            if counts[key] > 1 and key in wanted:
                raise ValueError(
                    f"--compare {name} has {label!r} twice among its labels; it must have each of "
                    f"the {self.axis.size} {self.axis.nouns} of V once"
                )
        place = {key: k for k, key in enumerate(theirs)}
        return self._taken([place[key] for key in mine], by="labels")

    def by_order(self) -> References:
        return self._taken(list(range(self.axis.size)), by="order")

    def _taken(self, order: list[int], by: str) -> References:
        named = tuple(self.names.name(k) for k in range(self.names.size))
        return References(self.side, named, self.values[order].astype(np.float64), by)

    def _keys(self) -> tuple[list[Any], list[Any]]:
        """The labels of V and of the references; as numbers if all are, so that 400 is 400.0."""
        mine, theirs = list(self.axis.labels or ()), list(self.features.labels or ())
        try:
            return [float(label) for label in mine], [float(label) for label in theirs]
        except ValueError:
            return mine, theirs


def compared(X: Float[np.ndarray, "n r"], reference: References) -> list[Pair]:
    """Each component with its reference under the pairing of the largest sum of cosines."""
    units = []
    for F in (X.astype(np.float64), reference.values):
        peak = np.abs(F).max(axis=0)
        F = F / np.where(peak > 0, peak, 1.0)
        norms = np.linalg.norm(F, axis=0)
        units.append(F / np.where(norms > 0, norms, 1.0))
    cosines = (units[0].T @ units[1]).clip(-1, 1)  # (r, k)
    rows, places = linear_sum_assignment(-cosines)
    paired = dict(zip(rows.tolist(), places.tolist(), strict=True))
    pairs = []
    for c, line in enumerate(cosines):
        k, nearest = paired.get(c), int(line.argmax())
        name, cosine = (None, None) if k is None else (reference.names[k], float(line[k]))
        pairs.append(Pair(c + 1, name, cosine, reference.names[nearest], float(line[nearest])))
    return pairs


_HEAD = ["component", "reference", "cosine", "angle", "nearest", "nearest_cosine"]


def compare_rank(folder: RunFolder, rank: int, reference: References) -> list[Pair]:
    """The pairs of one rank, which are kept in its folder as references.csv."""
    factors = folder.factors(rank)
    pairs = compared(factors["H" if reference.side == "columns" else "W"], reference)
    rows = (
        [
            f"component {p.component}",
            p.reference or "",
            "" if p.cosine is None else f"{p.cosine:.6g}",
            "" if p.angle is None else f"{p.angle:.4g}",
            p.nearest,
            f"{p.nearest_cosine:.6g}",
        ]
        for p in pairs
    )
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_HEAD, *rows])
    write(folder.rank(rank) / "references.csv", text.getvalue())
    return pairs


def kept_pairs(folder: RunFolder, rank: int) -> list[Pair] | None:
    """The pairs of one rank as they were kept; None if nothing was compared."""
    path = folder.rank(rank) / "references.csv"
    if not path.is_file():
        return None
    try:
        head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        if head != _HEAD or len(rows) != rank:
            raise ValueError
        return [
            Pair(c + 1, name or None, float(cosine) if cosine else None, nearest, float(least))
            for c, (_, name, cosine, _, nearest, least) in enumerate(rows)
        ]
    except ValueError as error:
        raise damaged(path, f"is not the table of {rank} components and references") from error
