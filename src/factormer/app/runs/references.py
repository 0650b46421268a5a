"""Components beside reference components, such as known signatures or measured spectra."""

from __future__ import annotations

import csv
import io
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from factormer.app.read import Axis, Data
from factormer.app.runs.folder import RunFolder
from factormer.data.files import write
from factormer.data.intake import is_sparse


class References(NamedTuple):
    """Named reference components over one side of V: "rows", with W, or "columns", with H."""

    side: str
    names: tuple[str, ...]
    values: Float[np.ndarray, "n k"]


class Pair(NamedTuple):
    """A component, its reference under the best pairing (or none), and the one it is most like."""

    component: int
    reference: str | None
    cosine: float | None
    nearest: str
    nearest_cosine: float

    @property
    def angle(self) -> float | None:
        """Between component and reference, in degrees."""
        return None if self.cosine is None else math.degrees(math.acos(min(self.cosine, 1.0)))


def references(found: Data, data: Data) -> References:
    """The reference components of a file, in the order of the rows or columns that they fit.

    By labels where both files have the same ones, in any order; else by their number alone.
    """
    V = found.V.toarray() if is_sparse(found.V) else found.V
    if not np.isfinite(V).all():
        raise ValueError(
            f"the reference components of {found.name} have unknown entries; fill them"
        )
    sides = (("columns", data.columns), ("rows", data.rows))
    turns = ((V, found.rows, found.columns), (V.T, found.columns, found.rows))
    for by_labels in (True, False):
        for side, axis in sides:
            for values, features, names in turns:
                order = _order(features, axis, by_labels)
                if order is not None:
                    named = tuple(names.name(k) for k in range(names.size))
                    return References(side, named, values[order].astype(np.float64))
    raise ValueError(
        f"--compare {found.name} is {found.rows.size}×{found.columns.size}, and neither side is "
        f"the {data.columns.size} {data.columns.nouns} or the {data.rows.size} {data.rows.nouns} "
        "of V; it must hold a value of each reference for each of these"
    )


def _order(features: Axis, axis: Axis, by_labels: bool) -> list[int] | None:
    """Where the entries of an axis are among the features; None if they do not fit."""
    if not by_labels:
        return list(range(axis.size)) if features.size == axis.size else None
    if features.labels is None or axis.labels is None:
        return None
    place = {label: k for k, label in enumerate(features.labels)}
    found = [place.get(label) for label in axis.labels]
    return None if None in found else [k for k in found if k is not None]


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


def compare_rank(folder: RunFolder, rank: int, reference: References) -> list[Pair]:
    """The pairs of one rank, which are kept in its folder as references.csv."""
    factors = folder.factors(rank)
    pairs = compared(factors["H" if reference.side == "columns" else "W"], reference)
    head = ["component", "reference", "cosine", "angle", "nearest", "nearest_cosine"]
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
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    write(folder.rank(rank) / "references.csv", text.getvalue())
    return pairs
