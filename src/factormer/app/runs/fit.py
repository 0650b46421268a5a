"""fit(): factorize at each rank, keep the results, and continue where an earlier run ended."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from factormer.app.read import Data
from factormer.app.runs.bound import svd_bound
from factormer.app.runs.check import check_folder, check_options
from factormer.app.runs.constraints import parse_all
from factormer.app.runs.counts import Counts
from factormer.app.runs.folder import RankResult, RunFolder, write_arrays
from factormer.app.runs.keeper import Keeper
from factormer.app.runs.residuals import Residuals, residuals
from factormer.app.runs.several import best_run
from factormer.app.runs.stored import SCHEMA
from factormer.app.runs.trust import (
    Agreement,
    agreed,
    arrays_of,
    as_result,
    check_trust,
    held_out,
    told,
)
from factormer.app.runs.units import check_scale, in_units
from factormer.data.intake import is_sparse
from factormer.functions import factorize
from factormer.problem.losses import as_loss
from factormer.run.order import canonical
from factormer.run.order import shares as component_shares
from factormer.run.provenance import provenance
from factormer.run.result import Result
from factormer.run.trace import Row, Trace
from factormer.select.validate import CrossValidation

_LONG = 1e9  # entries × rank × iterations from which intermediate results are saved
_NOTHING = np.zeros((0, 4))  # the trace of a fit that begins
_EXAMPLES = 6  # rows that use a component most, shown with it where rows are images


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options that a result depends on besides the data and the rank; see `factorize`."""

    loss: str | float = "frobenius"
    regularize_w: tuple[str, ...] = ()
    regularize_h: tuple[str, ...] = ()
    missing: str | None = None
    symmetric: bool = False
    init: str = "auto"
    solver: str = "auto"
    accelerator: str | None = "auto"
    max_iter: int = 500
    tol: float = 1e-4
    time_limit: float | None = None
    device: str | None = None
    seed: int | None = 0
    n_init: int = 1
    scale: str = "balanced"  # or "sum": components of sum 1
    repeats: int | None = None  # runs of which the consensus is kept
    resample: str = "none"  # new data for each of them: poisson, bootstrap or none
    holdout: float | None = None  # share of entries to hide, for their error

    def keywords(self) -> dict[str, Any]:
        """Return the options as keywords of `factorize`."""
        options = asdict(self)
        for name in ("scale", "repeats", "resample", "holdout"):
            del options[name]
        return {
            "regularize_W": parse_all(options.pop("regularize_w")),
            "regularize_H": parse_all(options.pop("regularize_h")),
            "random_state": options.pop("seed"),
            **options,
        }


def fit(
    data: Data,
    ranks: Sequence[int],
    options: FitOptions,
    path: Path,
    *,
    mask: Any = None,
    weights: Any = None,
    command: str = "",
    selected: dict[str, Any] | None = None,
    fresh: bool = False,
    watch: Callable[[int, Row], object] | None = None,
    begin: Callable[[int], object] = lambda rank: None,
    ran: Callable[[int, float], object] | None = None,
) -> list[RankResult]:
    """Fit each rank that is not done yet, and return the results of all of them.

    `begin` is called with each rank that is fitted, `watch` after each of its iterations, or, where
    `n_init` asks for several runs, `ran` after each run with their number and least error. An
    interrupted fit is kept with the best point so far, ends the run, and continues next time; a
    killed one continues from its last saved point. With `repeats` it starts again. `selected` is
    what `select_loss` found. Nothing is written, or discarded where `fresh`, before all options
    were checked.
    """
    folder, counts = RunFolder(path), Counts(mask, weights)
    keywords = options.keywords() | counts.keywords()
    check_trust(options.repeats, options.holdout, options.n_init, symmetric=options.symmetric)
    check_scale(options.scale, is_free=_is_free(keywords))
    check_options(data, ranks, keywords)
    check_folder(folder, data, counts, options, fresh=fresh)
    description = {
        "schema": SCHEMA,
        "command": command,
        "options": asdict(options),
        "data": _described(data, counts),
        "made_with": provenance(),
    }
    if selected is not None:
        description["selected_loss"] = selected
    with folder.held():
        check_folder(folder, data, counts, options, fresh=fresh)  # again, with the folder locked
        if fresh:
            folder.clear()
        folder.begin(description, data.rows, data.columns)
        bound = _bound(folder, data, counts, options, max(ranks))
        done = {result.rank: result for result in folder.results()}
        for rank in sorted(set(ranks)):
            if rank in done and done[rank].is_finished:
                folder.forget_runs(rank)
                continue
            begin(rank)
            callback = None if watch is None else (lambda row, rank=rank: watch(rank, row))
            hidden = None
            if options.holdout is not None:
                hidden = held_out(data, rank, keywords, options.holdout)
            if options.repeats is not None:
                began = time.perf_counter()
                agreement = agreed(data, rank, keywords, options.repeats, options.resample)
                seconds = time.perf_counter() - began
                fitted = _Fitted(as_result(agreement.found), _NOTHING, agreement, seconds)
            elif options.n_init > 1:
                fitted = _Fitted(best_run(data.V, rank, keywords, folder.runs(rank), ran))
            else:
                fitted = _fitted(folder, data, rank, keywords, callback)
            x = in_units(fitted.result.factors, options.scale, data.rows, data.columns)
            fitted = fitted._replace(result=replace(fitted.result, factors=x))
            done[rank] = _kept(folder, data, rank, keywords, counts, bound, fitted, hidden)
            if not done[rank].is_finished:
                break
    return [done[rank] for rank in sorted(set(ranks)) if rank in done]


class _Fitted(NamedTuple):
    """A result, the trace of an earlier part of it, and the consensus of runs that it is, if so."""

    result: Result
    earlier: np.ndarray = _NOTHING
    agreement: Agreement | None = None
    seconds: float = 0.0  # of all runs of the consensus


def _fitted(
    folder: RunFolder,
    data: Data,
    rank: int,
    keywords: dict[str, Any],
    callback: Callable[[Row], object] | None,
) -> _Fitted:
    """One run, from where an earlier part of it ended."""
    before, trace = folder.point(rank), _NOTHING
    if before is not None:
        trace = before["trace"]
        keywords = keywords | _left(keywords, trace)
        keywords |= {"init": "custom", "W": before["W"], "H": before["H"]}
    keeper = None
    if (data.V.nnz if is_sparse(data.V) else data.V.size) * rank * keywords["max_iter"] >= _LONG:
        keeper = Keeper(lambda W, H, now: folder.keep_point(rank, W, H, _continued(trace, now)))
    result = factorize(data.V, rank, callback=callback, watch=keeper, **keywords)
    if before is not None:  # a given start keeps its order, and this one was not ordered yet
        ordered = canonical(result.factors, "share", "balanced" if _is_free(keywords) else None)
        result = replace(result, factors=ordered)
    return _Fitted(result, trace)


def _kept(
    folder: RunFolder,
    data: Data,
    rank: int,
    keywords: dict[str, Any],
    counts: Counts,
    bound: np.ndarray | None,
    fitted: _Fitted,
    hidden: CrossValidation | None,
) -> RankResult:
    """Write the files of a rank; `hidden` are the errors of hidden entries."""
    result, agreement = fitted.result, fitted.agreement
    W, H, shares = result.W, result.H, component_shares(result.factors)
    loss = as_loss(keywords["loss"])
    errors = residuals(data.V, W, H, counts.known(data.V, keywords["missing"]), loss)
    trace = _continued(fitted.earlier, result.trace)
    kept = _result(result, rank, shares, errors, bound, trace)
    if counts.weights is not None:
        kept = replace(kept, mean_weight=errors.weight)
    if hidden is not None:
        folds, rounding = hidden.errors[0].tolist(), hidden.resolution
        kept = replace(kept, held_out=folds, held_out_rounding=rounding)
    if agreement is not None:
        found = agreement.found
        stability = [float(number) for number in found.stability]
        kept = replace(kept, stability=stability, runs_kept=int(found.kept.sum()))
        kept = replace(kept, seconds=fitted.seconds, message=told(found))
    views = errors._asdict()
    for name in ("divergence", "explained", "weight"):  # which result.json has, if any
        del views[name]
    if data.columns.grid is not None and not is_sparse(data.V):
        at = np.argsort(-W, axis=0, kind="stable")[:_EXAMPLES].T  # (r, k)
        rows = np.unique(at)
        views |= {"examples": at, "example_rows": rows, "example_values": data.V[rows]}
    folder.keep(
        kept,
        factors={"W": W, "H": H},
        views={name: np.asarray(value) for name, value in views.items()},
        trace=trace,
        axes=(data.rows, data.columns),
        consensus=None if agreement is None else arrays_of(agreement),
    )
    return kept


def _is_free(keywords: dict[str, Any]) -> bool:
    """Whether components may be scaled."""
    asked = (keywords["regularize_W"], keywords["regularize_H"], keywords["symmetric"])
    return not any(asked)


def _left(keywords: dict[str, Any], trace: np.ndarray) -> dict[str, Any]:
    """Iterations and seconds left after an earlier part of a fit; at least one iteration."""
    _, seconds, *_ = trace[-1]
    limit = keywords["time_limit"]
    return {
        "max_iter": max(1, keywords["max_iter"] - int(trace[-1, 0])),
        "time_limit": None if limit is None else max(limit - float(seconds), 1e-9),
    }


def _result(
    result: Result,
    rank: int,
    shares: np.ndarray,
    found: Residuals,
    bound: np.ndarray | None,
    trace: np.ndarray,
) -> RankResult:
    status = result.status
    return RankResult(
        rank=rank,
        status=status.name,
        message=status.value,
        iterations=int(trace[-1, 0]),
        seconds=float(trace[-1, 1]),
        objective=float(_quiet(lambda: result.loss, result.rmse)),
        rmse=found.rmse,
        relative_error=found.relative,
        explained=1 - found.relative**2,
        svd_rmse=None if bound is None else min(_at(bound, rank), found.rmse),
        shares=[float(share) for share in shares],
        divergence=_if_finite(found.divergence),
        explained_divergence=_if_finite(found.explained),
    )


def _if_finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _at(bound: np.ndarray, rank: int) -> float:
    """The least error of any matrix of that rank; with rounding, it may exceed one that was
    reached.
    """
    return float(bound[min(rank, len(bound) - 1)])


def _quiet(loss: Callable[[], Any], rmse: Any) -> np.ndarray:
    """The objective, without its warning; NaN where it overflows or underflows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of that
        values = np.array(loss(), dtype=np.float64)
    return np.where(np.isfinite(values) & ((values != 0) | (np.asarray(rmse) == 0)), values, np.nan)


def _continued(before: np.ndarray, t: Trace) -> np.ndarray:
    """The history of a fit with that of the part before its interruption."""
    loss = _quiet(lambda: t.loss, t.rmse)
    now = np.stack([t.iteration, t.seconds, t.rmse, loss], axis=1).astype(np.float64)
    if len(before):
        now = now[1:] + np.array([before[-1, 0], before[-1, 1], 0, 0])
    return np.concatenate([before, now])


def _bound(
    folder: RunFolder, data: Data, counts: Counts, options: FitOptions, max_rank: int
) -> np.ndarray | None:
    """The SVD bound, from disk where it reaches far enough; None if weights differ."""
    unknown = not counts.is_empty or options.missing is not None
    if unknown or (not is_sparse(data.V) and not np.isfinite(data.V).all()):
        return None
    stored, wanted = folder.bound(), min(max(max_rank, 20), *data.V.shape) + 1
    if stored is not None and len(stored) >= wanted:
        return stored
    bound = svd_bound(data.V, wanted - 1)
    write_arrays(folder.path / "data.npz", svd_bound=bound)
    return bound


def _described(data: Data, counts: Counts) -> dict[str, Any]:
    V = data.V
    return {
        "name": data.name,
        "source": data.source,
        "shape": list(V.shape),
        "dtype": str(V.dtype),
        "nonzeros": int(V.nnz if is_sparse(V) else np.count_nonzero(V)),
        "is_sparse": is_sparse(V),
        "unknown": data.n_unknown,
        "rows": str(data.rows),
        "columns": str(data.columns),
        "has_mask": counts.mask is not None,
        "has_weights": counts.weights is not None,
        "checksum": data.checksum() + counts.checksum(),
    }
