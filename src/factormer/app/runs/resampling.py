"""`--resample`: the data that each run of `--repeats` is made on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from factormer.app.read import Axis, Data
from factormer.app.runs.counts import Counts
from factormer.app.runs.folder import RunFolder
from factormer.data.intake import is_sparse
from factormer.problem.losses import Beta, as_loss
from factormer.run.request import check_choice
from factormer.sentence import Sentence

KINDS = ("poisson", "bootstrap", "none")
_SAMPLES = frozenset(
    [
        "cell",
        "donor",
        "document",
        "individual",
        "observation",
        "participant",
        "patient",
        "recording",
        "sample",
        "specimen",
        "spectrum",
        "subject",
        "text",
        "tumor",
        "tumour",
        "user",
    ]
)


def samples_are_columns(rows: Axis, columns: Axis) -> bool:
    """Whether the samples are the columns of V, as far as names and the 96 mutation types tell."""
    if columns.noun in _SAMPLES:
        return rows.noun not in _SAMPLES
    return rows.kind == "mutations" and columns.kind != "mutations"


class Resampling(NamedTuple):
    """How the data of each run is drawn.

    Where the runs share the data though nobody asked for that, `reason` completes the sentence
    "runs differ only in their starts, as …".
    """

    kind: str
    reason: str | None = None


def resampling(
    asked: str | None,
    repeats: int | None,
    data: Data,
    loss: str | float,
    missing: str | None,
    counts: Counts,
    folder: RunFolder | None,
) -> Resampling:
    """Return the kind of new data that was asked for, or else the one that suits the data.

    Counts under Kullback–Leibler are drawn from Poisson distributions; otherwise samples are drawn
    with replacement. Sparse data, and data with unknown entries or weights, cannot be drawn. A run
    in `folder` that an earlier version began varies only the starts, and continues so.
    """
    if asked is not None:
        check_choice("resample", asked, KINDS)
    if asked not in (None, "none"):
        _check(asked, repeats, data, missing, counts)
        return Resampling(asked)
    if asked == "none" or repeats is None:
        return Resampling("none")
    if not _is_whole(data, missing, counts):
        return Resampling(
            "none",
            "new data is drawn from dense files whose entries are all known and count the same",
        )
    if folder is not None and folder.is_begun() and folder.in_blocks() is None:
        options = folder.description()["options"]
        if options.get("repeats") is not None and "resample" not in options:
            return Resampling(
                "none", f"the run in {folder.path} began so; --fresh draws new data for each run"
            )
    kind = as_loss(loss)
    of_counts = isinstance(kind, Beta) and kind.beta == 1
    is_whole = bool((np.round(data.V) == data.V).all())
    return Resampling("poisson" if of_counts and is_whole else "bootstrap")


def _is_whole(data: Data, missing: str | None, counts: Counts) -> bool:
    """Whether V is dense, and all its entries are known and count the same."""
    return not is_sparse(data.V) and not data.n_unknown and missing is None and counts.is_empty


def _check(
    kind: str | None, repeats: int | None, data: Data, missing: str | None, counts: Counts
) -> None:
    if repeats is None:
        raise ValueError(
            Sentence(
                "{resample} is {kind!r}, which draws new data for each of several runs: add "
                "--repeats 20, or leave it out",
                kind=kind,
            )
        )
    if not _is_whole(data, missing, counts):
        raise ValueError(
            Sentence(
                "{resample} is {kind!r}, which takes a dense file whose entries are all known and "
                "count the same: leave it out, and runs will differ in their starts alone",
                kind=kind,
            )
        )
