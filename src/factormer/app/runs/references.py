"""Components beside reference components, such as known signatures or measured spectra."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from factormer.app.read import Axis, Data
from factormer.app.runs.folder import RunFolder, write_arrays
from factormer.app.runs.stored import damaged, load_arrays
from factormer.data.files import write
from factormer.data.intake import is_sparse

_CLOSE = 0.8  # the least cosine at which a component counts as its reference
_GAIN = 0.01  # of cosine, that one more reference must bring to be part of a sum
_PARTS = 5  # references in a sum, at most
_RISING = 8  # rows, at least, of a first column of numbers that rises by chance in no table
_EQUAL = 1e-3  # relative difference of steps that are equal but for rounding
_UNITS = {"µm": 1000.0, "nm": 1.0, "kHz": 1000.0, "Hz": 1.0, "keV": 1000.0, "eV": 1.0}
_KINDS = ({"µm", "nm"}, {"kHz", "Hz"}, {"keV", "eV"})  # of units that can be compared


class References(NamedTuple):
    """Named reference components over one side of V: "rows", with W, or "columns", with H.

    `by` says how they were laid along it: by "labels", by "positions" such as wavelengths, or by
    "order" where there are none.
    """

    side: str
    names: tuple[str, ...]
    values: Float[np.ndarray, "n k"]
    by: str = "labels"


class Pair(NamedTuple):
    """A component and the reference that is nearest, which others may share.

    `reference` is None where its cosine is below 0.8. `parts` are references and their shares in a
    sum, where a sum is nearer than the nearest alone, with its cosine.
    """

    component: int
    reference: str | None
    cosine: float | None
    nearest: str
    nearest_cosine: float
    parts: tuple[tuple[str, float], ...] = ()
    sum_cosine: float | None = None

    def __str__(self) -> str:
        if self.reference is None:
            text = f"no close reference (nearest {self.nearest}, cosine {self.nearest_cosine:.3f})"
        else:
            text = f"{self.reference}, cosine {self.cosine:.3f} ({self.angle:.1f}°)"
        return f"{text}; {self.sum}, cosine {self.sum_cosine:.3f}" if self.parts else text

    @property
    def angle(self) -> float | None:
        """Between component and reference, in degrees."""
        return None if self.cosine is None else math.degrees(math.acos(min(self.cosine, 1.0)))

    @property
    def sum(self) -> str:
        """The sum in words: "0.62 SBS3 + 0.38 SBS8"; empty where the nearest alone is as near."""
        return " + ".join(f"{share:.2f} {name}" for name, share in self.parts)


def references(found: Data, data: Data) -> References:
    """The reference components of a file, in the order of the rows or columns that they fit.

    By positions where both files have them: references are interpolated. By labels where both have
    those, in any order. By order alone, on a side of the same size, only where one of the two files
    has neither there. Labels that differ are refused.
    """
    found = _positioned(found)
    V = found.V.toarray() if is_sparse(found.V) else found.V
    if not np.isfinite(V).all():
        raise ValueError(
            f"the reference components of {found.name} have unknown entries; fill them"
        )
    sides = (("columns", data.columns), ("rows", data.rows))
    turns = ((V, found.rows, found.columns), (V.T, found.columns, found.rows))
    fits = [_Fit(*side, *turn) for side in sides for turn in turns]
    if (positioned := [fit for fit in fits if fit.has_positions]) != []:
        return positioned[0].by_positions(found.name)
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


def _positioned(found: Data) -> Data:
    """The table with its first column as positions, where the reader took it for a reference.

    That is so if it rises or falls in equal steps, whatever its name, or throughout in a table
    without a header, which says no name. A reference would hardly do either in so many rows.
    """
    V = found.V.toarray() if is_sparse(found.V) else np.asarray(found.V)
    features, names = found.rows, found.columns
    if features.labels is not None or len(V) < _RISING or V.shape[1] < 2:
        return found
    steps = np.diff(V[:, 0])
    goes = bool((steps > 0).all() or (steps < 0).all())
    if not goes or (names.labels is not None and np.ptp(steps) > _EQUAL * abs(steps[0])):
        return found
    labels = None if names.labels is None else names.labels[1:]
    rows = replace(features, positions=tuple(V[:, 0].tolist()))
    columns = replace(names, size=names.size - 1, labels=labels, positions=None)
    return replace(found, V=V[:, 1:], rows=rows, columns=columns)


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
    def has_positions(self) -> bool:
        return self.features.positions is not None and self.axis.positions is not None

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

    def by_positions(self, name: str) -> References:
        """The references between their own positions, where V has its own."""
        mine, theirs = (
            np.array(axis.positions, np.float64) * self._unit(axis)
            for axis in (self.axis, self.features)
        )
        order = theirs.argsort()
        theirs, values = theirs[order], self.values[order].astype(np.float64)
        slack = np.abs(np.diff(theirs)).max(initial=0.0)
        if mine.min() < theirs[0] - slack or mine.max() > theirs[-1] + slack:
            ends = [f"{x:.6g}" for x in (*theirs[[0, -1]], mine.min(), mine.max())]
            raise ValueError(
                f"--compare {name} goes from {ends[0]} to {ends[1]}, and the {self.axis.nouns} of "
                f"V from {ends[2]} to {ends[3]}; it must cover them, in the same unit"
            )
        at = np.stack([np.interp(mine, theirs, column) for column in values.T], axis=1)
        return self._named(at, "positions")

    def _unit(self, axis: Axis) -> float:
        """What the positions of an axis are multiplied by, where both axes name a unit."""
        both = {self.axis.unit, self.features.unit}
        return _UNITS[axis.unit] if any(both <= kind for kind in _KINDS) else 1.0

    def by_order(self) -> References:
        return self._taken(list(range(self.axis.size)), by="order")

    def _taken(self, order: list[int], by: str) -> References:
        return self._named(self.values[order].astype(np.float64), by)

    def _named(self, values: Float[np.ndarray, "n k"], by: str) -> References:
        names = tuple(self.names.name(k) for k in range(self.names.size))
        return References(self.side, names, values, by)

    def _keys(self) -> tuple[list[Any], list[Any]]:
        """The labels of V and of the references; as numbers if all are, so that 400 is 400.0."""
        mine, theirs = list(self.axis.labels or ()), list(self.features.labels or ())
        try:
            return [float(label) for label in mine], [float(label) for label in theirs]
        except ValueError:
            return mine, theirs


def compared(X: Float[np.ndarray, "n r"], reference: References) -> list[Pair]:
    """Each component with the reference nearest to it, and the sum of references that is nearer."""
    units, known = _units(X.astype(np.float64)), _units(reference.values)
    return [_pair(c, units[:, c], known, reference) for c in range(units.shape[1])]


def _units(F: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Columns of length 1; by the peak first, so that squares are finite."""
    for sizes in (lambda F: np.abs(F).max(axis=0), lambda F: np.linalg.norm(F, axis=0)):
        size = sizes(F)
        F = F / np.where(size > 0, size, 1.0)
    return F


def _pair(
    c: int, x: Float[np.ndarray, " n"], known: Float[np.ndarray, "n k"], reference: References
) -> Pair:
    cosines = (x @ known).clip(-1, 1)
    nearest = int(cosines.argmax())
    best = float(cosines[nearest])
    name = reference.names[nearest]
    chosen, weights, near = [nearest], np.ones(1), best
    while len(chosen) < min(_PARTS, known.shape[1]):  # one more while that brings it nearer
        tried = [k for k in range(known.shape[1]) if k not in chosen]
        found = [_sum(x, known[:, [*chosen, k]]) for k in tried]
        k = int(np.argmax([cosine for cosine, _ in found]))
        if found[k][0] < near + _GAIN:
            break
        near, weights = found[k]
        chosen.append(tried[k])
    shares = weights * np.abs(known[:, chosen]).sum(axis=0)  # of sums, as exposures are
    kept = sorted(zip(shares / (shares.sum() or 1.0), chosen, strict=True), reverse=True)
    parts = tuple((reference.names[k], float(share)) for share, k in kept if share > 0)
    is_sum = len(parts) > 1
    return Pair(
        c + 1,
        name if best >= _CLOSE else None,
        best if best >= _CLOSE else None,
        name,
        best,
        parts if is_sum else (),
        near if is_sum else None,
    )


def _sum(
    x: Float[np.ndarray, " n"], known: Float[np.ndarray, "n k"]
) -> tuple[float, Float[np.ndarray, " k"]]:
    """The cosine of the best sum with nonnegative weights, and these."""
    weights, _ = nnls(known, x)
    total = known @ weights
    length = float(np.linalg.norm(total))
    return (float(total @ x) / length if length else 0.0), weights


_HEAD = ["component", "reference", "cosine", "angle", "nearest", "nearest_cosine"]
_SUMS = ["sum", "sum_cosine"]  # which tables of earlier versions do not have


def compare_rank(folder: RunFolder, rank: int, reference: References) -> list[Pair]:
    """The pairs of one rank, kept in its folder as references.csv, and as curves in an .npz."""
    X = folder.factors(rank)["H" if reference.side == "columns" else "W"]
    pairs = compared(X, reference)
    rows = (
        [
            f"component {p.component}",
            p.reference or "",
            "" if p.cosine is None else f"{p.cosine:.6g}",
            "" if p.angle is None else f"{p.angle:.4g}",
            p.nearest,
            f"{p.nearest_cosine:.6g}",
            p.sum,
            "" if p.sum_cosine is None else f"{p.sum_cosine:.6g}",
        ]
        for p in pairs
    )
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_HEAD + _SUMS, *rows])
    write(folder.rank(rank) / "references.csv", text.getvalue())
    place = {name: k for k, name in enumerate(reference.names)}
    curves = np.zeros(X.shape)
    for c, p in enumerate(pairs):
        shares = p.parts or ((p.nearest, 1.0),)
        values = reference.values[:, [place[name] for name, _ in shares]]
        sums = values.sum(axis=0)
        curves[:, c] = values @ (np.array([s for _, s in shares]) / np.where(sums > 0, sums, 1.0))
    write_arrays(folder.rank(rank) / "references.npz", **{reference.side: curves})
    return pairs


def kept_curves(folder: RunFolder, rank: int) -> dict[str, np.ndarray]:
    """What each component was compared with, over "rows" or "columns"; empty if it is not kept."""
    path = folder.rank(rank) / "references.npz"
    return load_arrays(path) if path.is_file() else {}


def kept_pairs(folder: RunFolder, rank: int) -> list[Pair] | None:
    """The pairs of one rank as they were kept; None if nothing was compared."""
    path = folder.rank(rank) / "references.csv"
    if not path.is_file():
        return None
    try:
        head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        if head not in (_HEAD, _HEAD + _SUMS) or len(rows) != rank:
            raise ValueError
        return [_kept(c + 1, *row[1:]) for c, row in enumerate(rows)]
    except (TypeError, ValueError) as error:
        raise damaged(path, f"is not the table of {rank} components and references") from error


def _kept(
    component: int,
    name: str,
    cosine: str,
    angle: str,
    nearest: str,
    nearest_cosine: str,
    sum: str = "",
    sum_cosine: str = "",
) -> Pair:
    """A line of the table."""
    close = float(cosine) if cosine else None
    parts = [part.split(" ", 1) for part in re.split(r" \+ (?=\d\.\d\d )", sum)] if sum else []
    shares = tuple((part, float(share)) for share, part in parts)
    near = float(sum_cosine) if sum_cosine else None
    return Pair(component, name or None, close, nearest, float(nearest_cosine), shares, near)
