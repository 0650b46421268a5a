"""transform(): the coefficients of new rows for the components of a run."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from factormer.app.read import Axis, Data
from factormer.app.runs.constraints import parse_all
from factormer.app.runs.fit import FitOptions
from factormer.app.runs.folder import RunFolder
from factormer.app.runs.large import LargeResult
from factormer.app.runs.stored import built, load_factor
from factormer.data.factors import Factors
from factormer.data.observations import observe
from factormer.problem.losses import as_loss
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.run.settle import coefficients


class Transformed(NamedTuple):
    """W for new rows, the mean loss of an entry of V, ½(V − W Hᵀ)² or another, and the rank."""

    W: Float[np.ndarray, "m r"]
    loss: float
    rank: int


def transform(data: Data, folder: RunFolder, rank: int | None = None) -> Transformed:
    """The W that fits new rows best, under the loss and the penalties on W of a run.

    Columns are put in the order of the run where both have labels. `rank` is needed where the run
    has several.
    """
    model = _model(folder, rank)
    options, rank = model.options, model.rank
    if options.symmetric:
        raise ValueError(
            f"{folder.path} holds a symmetric run, V ≈ H Hᵀ, which has no coefficients of new "
            "rows; choose a run without --symmetric"
        )
    if _is_turned(data, model.columns):
        raise ValueError(
            f"the {data.rows.nouns} of the new data are the {model.columns.nouns} of the run, so "
            "its samples are its columns: add --transpose"
        )
    V = data.V[:, _order(data.columns, model.columns)]
    matrix = observe(V, missing=options.missing)
    penalties = Penalties.of(parse_all(options.regularize_w))
    H = torch.from_numpy(model.H).to(matrix.dtype)
    loss = as_loss(options.loss)
    W = coefficients(matrix, H, loss, penalties).W
    problem = Problem(matrix, rank, loss)
    return Transformed(W.numpy(), float(problem.objective(Factors(W, H)) / problem.size()), rank)


class _Model(NamedTuple):
    """The factors that a run has found, and its options."""

    options: FitOptions
    rank: int
    H: Float[np.ndarray, "n r"]
    columns: Axis


def _model(folder: RunFolder, rank: int | None) -> _Model:
    """Return the model of a run; data beyond memory has neither labels nor penalties."""
    file, blocks = folder.path / "run.json", folder.in_blocks()
    if blocks is None:
        options = built(FitOptions, folder.description()["options"], file)
        rank = _rank(folder, [result.rank for result in folder.results()], rank)
        return _Model(options, rank, folder.factors(rank)["H"], folder.axes()[1])
    ranks = [built(LargeResult, row, file).rank for row in blocks["results"]]
    rank = _rank(folder, ranks, rank)
    H = load_factor(folder.rank(rank) / "H.npy", rank)
    options = built(FitOptions, {"loss": blocks["options"].get("loss")}, file)
    return _Model(options, rank, H, Axis(len(H), "column"))


def _rank(folder: RunFolder, ranks: list[int], rank: int | None) -> int:
    """The rank asked for, or the only one there is."""
    if not ranks:
        raise ValueError(f"{folder.path} has no rank that is done; fit one first: factormer fit")
    shown = ", ".join(map(str, ranks))
    if rank is None and len(ranks) == 1:
        return ranks[0]
    if rank not in ranks:
        asked = "has several ranks" if rank is None else f"has no rank {rank}"
        raise ValueError(f"{folder.path} {asked}; choose one with --rank: {shown}")
    return rank


def _is_turned(data: Data, fitted: Axis) -> bool:
    """Whether the rows of new data are the columns of the run, and its columns are not."""

    def fits(axis: Axis) -> bool:
        if axis.labels is not None and fitted.labels is not None:
            return set(fitted.labels) <= set(axis.labels)
        return axis.size == fitted.size

    return fits(data.rows) and not fits(data.columns)


def _order(new: Axis, fitted: Axis) -> Any:
    """Return the places of the run's columns among the new ones; without labels they stay."""
    if new.size != fitted.size and (new.labels is None or fitted.labels is None):
        raise ValueError(
            f"the new data has {new.size} {new.nouns}, and the run {fitted.size} {fitted.nouns}; "
            "both must have the same columns: --transpose exchanges rows and columns"
        )
    if new.labels is None or fitted.labels is None or new.labels == fitted.labels:
        return slice(None)
    repeated = [label for label, count in Counter(new.labels).items() if count > 1]
    known = set(new.labels)
    missing = [label for label in fitted.labels if label not in known]
    if repeated or missing:
        wrong = repeated or missing
        what = f"has {wrong[0]!r} twice" if repeated else f"lacks {wrong[0]!r}"
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(
            f"the new data {what} among its {new.nouns}{more}; it must have each of the run's "
            f"{fitted.size} {fitted.nouns} once, in any order"
        )
    places = {label: place for place, label in enumerate(new.labels)}
    return [places[label] for label in fitted.labels]
