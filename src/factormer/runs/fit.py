"""fit(): factorise at each rank, keep what came of it, and go on where an earlier run ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Float

from factormer.circumstances import circumstances
from factormer.engine import factorize
from factormer.read import Data
from factormer.runs.bound import svd_bound
from factormer.runs.constraints import parse_all
from factormer.runs.folder import RankResult, RunFolder, write_arrays
from factormer.runs.residuals import Residuals, residuals
from factormer.solve import Result, Row
from factormer.validate import is_sparse

_EXAMPLES = 6  # rows that use a component most, shown with it where rows are images


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What a result depends on besides the data and the rank; see `factorize` for each."""

    loss: str | float = "frobenius"
    regularize_w: tuple[str, ...] = ()
    regularize_h: tuple[str, ...] = ()
    missing: str | None = None
    symmetric: bool = False
    init: str = "auto"
    solver: str = "auto"
    accelerator: str | None = "auto"
    max_iter: int = 200
    tol: float = 1e-4
    time_limit: float | None = None
    device: str | None = None
    seed: int | None = 0

    def keywords(self) -> dict[str, Any]:
        """Those of `factorize`."""
        options = asdict(self)
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
    command: str = "",
    fresh: bool = False,
    watch: Callable[[int, Row], object] | None = None,
    begin: Callable[[int], object] = lambda rank: None,
) -> list[RankResult]:
    """Fit each rank that is not done yet, and return the results of all of them.

    `begin` is called with each rank that is fitted, `watch` after each of its iterations. An
    interrupted fit is kept with the best point so far, ends the run, and is gone on with next time.
    """
    keywords = options.keywords()
    folder = RunFolder(path)
    if fresh:
        folder.clear()
    _check_same(folder, data, mask, options)
    description = {
        "command": command,
        "options": asdict(options),
        "data": _described(data, mask),
        "made_with": circumstances(),
    }
    folder.begin(description, data.rows, data.columns)
    bound = _bound(folder, data, mask, options, max(ranks))
    done = {result.rank: result for result in folder.results()}
    for rank in sorted(set(ranks)):
        if rank in done and done[rank].is_finished:
            continue
        begin(rank)
        callback = None if watch is None else (lambda row, rank=rank: watch(rank, row))
        done[rank] = _fit_one(folder, data, rank, keywords, mask, bound, callback, done.get(rank))
        if not done[rank].is_finished:
            break
    return [done[rank] for rank in sorted(set(ranks)) if rank in done]


def _fit_one(
    folder: RunFolder,
    data: Data,
    rank: int,
    keywords: dict[str, Any],
    mask: Any,
    bound: np.ndarray | None,
    callback: Callable[[Row], object] | None,
    earlier: RankResult | None,
) -> RankResult:
    trace = np.zeros((0, 4))
    if earlier is not None:
        trace = folder.trace(rank)
        kept = folder.arrays(f"rank-{rank}", "factors.npz")
        left = max(1, keywords["max_iter"] - earlier.iterations)
        keywords = {**keywords, "init": "custom", "W": kept["W"], "H": kept["H"], "max_iter": left}
    result = factorize(data.V, rank, mask=mask, callback=callback, **keywords)
    W, H, shares = by_share(result.W, result.H)
    found = residuals(data.V, W, H, known_entries(data.V, mask, keywords["missing"]))
    trace = _continued(trace, result)
    kept = _result(result, rank, shares, found, bound, trace)
    views = found._asdict()
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
    )
    return kept


def by_share(
    W: Float[np.ndarray, "m r"], H: Float[np.ndarray, "n r"]
) -> tuple[Float[np.ndarray, "m r"], Float[np.ndarray, "n r"], Float[np.ndarray, " r"]]:
    """Components in the order of their shares of Σ W Hᵀ, which is the sum of their own sums."""
    sums = np.abs(W).sum(axis=0, dtype=np.float64) * np.abs(H).sum(axis=0, dtype=np.float64)
    order = np.argsort(-sums, kind="stable")
    total = sums.sum()
    return W[:, order], H[:, order], sums[order] / total if total else sums


def known_entries(V: Any, mask: Any, missing: str | None) -> Any:
    """A mask of what is known, None for all; NaN is found by those who read V."""
    if is_sparse(V):
        if missing is None:
            return mask
        stored = scipy.sparse.csr_array(V != 0).astype(np.float64)
        return stored if mask is None else stored.multiply(mask).tocsr()
    if missing is None:
        return mask
    return (V != 0) if mask is None else (V != 0) & (_dense(mask) > 0)


def _dense(mask: Any) -> np.ndarray:
    return mask.toarray() if is_sparse(mask) else np.asarray(mask)


def _result(
    result: Result,
    rank: int,
    shares: np.ndarray,
    found: Residuals,
    bound: np.ndarray | None,
    trace: np.ndarray,
) -> RankResult:
    relative = found.rmse * np.sqrt(found.known / found.sq_norm) if found.sq_norm else 0.0
    status = result.status
    return RankResult(
        rank=rank,
        status=status.name,
        message=status.value,
        iterations=int(trace[-1, 0]),
        seconds=float(trace[-1, 1]),
        objective=float(result.loss),
        rmse=found.rmse,
        relative_error=float(relative),
        explained=float(1 - relative**2),
        svd_rmse=None if bound is None else float(bound[min(rank, len(bound) - 1)]),
        shares=[float(share) for share in shares],
    )


def _continued(before: np.ndarray, result: Result) -> np.ndarray:
    """The history of a fit with that of the part before its interruption."""
    t = result.trace
    now = np.stack([t.iteration, t.seconds, t.rmse, t.loss], axis=1).astype(np.float64)
    if len(before):
        now = now[1:] + np.array([before[-1, 0], before[-1, 1], 0, 0])
    return np.concatenate([before, now])


def _bound(
    folder: RunFolder, data: Data, mask: Any, options: FitOptions, max_rank: int
) -> np.ndarray | None:
    """The SVD bound, from disk where it reaches far enough; None where entries are unknown."""
    unknown = mask is not None or options.missing is not None
    if unknown or (not is_sparse(data.V) and not np.isfinite(data.V).all()):
        return None
    path, wanted = folder.path / "data.npz", min(max(max_rank, 20), *data.V.shape) + 1
    if path.is_file():
        stored = folder.arrays("data.npz")["svd_bound"]
        if len(stored) >= wanted:
            return stored
    bound = svd_bound(data.V, wanted - 1)
    write_arrays(path, svd_bound=bound)
    return bound


def _described(data: Data, mask: Any) -> dict[str, Any]:
    V = data.V
    return {
        "name": data.name,
        "source": data.source,
        "shape": list(V.shape),
        "dtype": str(V.dtype),
        "nonzeros": int(V.nnz if is_sparse(V) else np.count_nonzero(V)),
        "is_sparse": is_sparse(V),
        "unknown": 0 if is_sparse(V) else int(np.isnan(V).sum()),
        "has_mask": mask is not None,
        "checksum": _checksum(data, mask),
    }


def _checksum(data: Data, mask: Any) -> str:
    if mask is None:
        return data.checksum()
    covered = Data(mask, data.rows, data.columns, "mask", "mask")
    return f"{data.checksum()}+{covered.checksum()}"


def _check_same(folder: RunFolder, data: Data, mask: Any, options: FitOptions) -> None:
    """Results of other data or options must not stand beside new ones, nor replace other files."""
    if (name := folder.taken()) is not None:
        raise ValueError(f"{folder.path} holds {name}, which no run has made; choose another --out")
    if not folder.results():
        return
    before = folder.description()
    remedy = "choose another --out, or begin anew with --fresh"
    if before["data"]["checksum"] != _checksum(data, mask):
        raise ValueError(f"{folder.path} holds a run on other data; {remedy}")
    now = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items()}
    for name, value in now.items():
        if before["options"].get(name) != value:
            raise ValueError(
                f"{folder.path} holds a run with {name} {before['options'].get(name)!r}, not "
                f"{value!r}; {remedy}"
            )
