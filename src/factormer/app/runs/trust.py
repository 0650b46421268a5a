"""How far to trust a fit: the consensus of many runs, and the error of hidden entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from factormer.app.read import Data
from factormer.app.runs.folder import RankResult
from factormer.app.runs.resampling import samples_are_columns
from factormer.data.factors import Factors
from factormer.data.intake import to_numpy
from factormer.problem.losses import as_loss
from factormer.run.request import check_count
from factormer.run.result import Result, Status
from factormer.select.agreement import Consensus
from factormer.select.consensus import consensus
from factormer.select.holdout import parts_of
from factormer.select.validate import CrossValidation, cross_validate

_FOLDS = 10
_ALIKE = ("loss", "regularize_W", "regularize_H", "solver", "accelerator")
_DATA = ("mask", "weights", "missing", "device", "random_state", "time_limit")


def check_trust(
    repeats: int | None, holdout: float | None, n_init: int, *, symmetric: bool
) -> None:
    """Refuse what cannot be done, before anything is."""
    if repeats is not None and n_init > 1:
        raise ValueError(
            "--repeats keeps what all runs agree on, --n-init the best: leave one of them out"
        )
    if repeats is not None:
        check_count("repeats", repeats, 2)
    if holdout is not None:
        parts_of(holdout)
    if symmetric and (repeats is not None or holdout is not None):
        raise ValueError(
            "--repeats and --holdout do not go with --symmetric; leave one of them out"
        )


class Agreement(NamedTuple):
    """A consensus for V.

    Its matrix says how often two samples go together. Samples are the columns of V if `of_columns`,
    and the rows otherwise.
    """

    found: Consensus
    of_columns: bool


def agreed(
    data: Data, rank: int, keywords: dict[str, Any], n_runs: int, resample: str
) -> Agreement:
    """Return what many runs have in common.

    Where the samples are the columns, V is transposed for it: samples are drawn and compared, and
    components are matched by what they are made of.
    """
    names = (*_ALIKE, *_DATA, "init", "max_iter", "tol")
    asked = {name: keywords[name] for name in names}
    asked["init"] = "random" if asked["init"] == "auto" else asked["init"]
    asked["resample"] = None if resample == "none" else resample
    if not samples_are_columns(data.rows, data.columns):
        return Agreement(consensus(data.V, rank, n_runs=n_runs, **asked), False)
    on_w, on_h = asked["regularize_W"], asked["regularize_H"]
    asked |= {"regularize_W": on_h, "regularize_H": on_w}
    found = consensus(data.V.T, rank, n_runs=n_runs, **asked)
    factors = Factors(found.factors.H, found.factors.W)
    return Agreement(replace(found, factors=factors, runs=None), True)


def as_result(found: Consensus) -> Result:
    """The consensus as a result, with the history of the run that is most like all others.

    Runs that are missing were interrupted or out of time, and the consensus is then too.
    """
    status = found.ended if found.status is None else found.status
    error = torch.tensor(found.error, dtype=torch.float64)
    return Result(found.factors, status, found.trace, error, to_numpy)


def told(found: Consensus) -> str:
    """How its runs ended, in words."""
    kept, asked = int(found.kept.sum()), len(found.kept)
    text = f"{kept} of {asked} runs are kept"
    if found.status is Status.TIME_LIMIT:
        text = f"the time limit was reached before all runs were done: {text}"
    if not found.unmet:
        return f"{text}, and all of them met the tolerance"
    return f"{text}, of which {found.unmet} ended before the tolerance was met"


def arrays_of(agreement: Agreement) -> dict[str, np.ndarray]:
    """Return what is kept of a consensus besides the factors."""
    names = ("stability", "cosine", "kept", "errors", "matrix", "samples", "order", "cophenetic")
    arrays = {name: np.asarray(getattr(agreement.found, name)) for name in names}
    return arrays | {"of_columns": np.asarray(agreement.of_columns)}


def held_out(
    data: Data, rank: int, keywords: dict[str, Any], holdout: float
) -> CrossValidation | None:
    """The errors of hidden entries; None where there was no time for any fold."""
    asked = {name: keywords[name] for name in (*_ALIKE, *_DATA, "max_iter", "tol")}
    folds = min(_FOLDS, parts_of(holdout))
    try:
        found = cross_validate(data.V, rank, holdout=holdout, n_folds=folds, **asked)
    except TimeoutError:
        return None
    if found.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return found


def as_shown(found: CrossValidation) -> list[tuple[int, float, float]]:
    """Rank, error of hidden entries and its standard error, as people are shown errors.

    For the squared error the root of the mean square, else the mean loss; NaN from a single fold.
    """
    error, spread = found.mean, found.standard_error
    if found.loss.is_quadratic:  # ½(v − y)²
        error = np.sqrt(2 * error)
        spread = np.divide(spread, error, out=np.zeros_like(spread), where=error > 0)
    return [
        (int(k), float(e), float(s)) for k, e, s in zip(found.ranks, error, spread, strict=True)
    ]


def validated(
    results: Sequence[RankResult], loss: str | float, holdout: float
) -> CrossValidation | None:
    """The errors of hidden entries at all ranks that have some; None if there are none."""
    have = [(r.rank, r.held_out) for r in results if r.held_out]
    if not have:
        return None
    folds = min(len(errors) for _, errors in have)
    errors = np.array([errors[:folds] for _, errors in have], float)
    ranks = np.array([rank for rank, _ in have], int)
    rounding = max(r.held_out_rounding or 0.0 for r in results)
    return CrossValidation(ranks, errors, as_loss(loss), holdout, rounding)
