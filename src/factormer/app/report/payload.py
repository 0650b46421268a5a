"""What the page knows: everything it shows of a run, small enough for one file."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from factormer.app.read import Axis
from factormer.app.report.views import Reduction, packed, shrunk, significant, thinned, top
from factormer.app.runs import RankResult, RunFolder
from factormer.app.runs.advice import Advice, advised, bend
from factormer.app.runs.stored import damaged
from factormer.app.runs.trust import as_shown, validated

_BYTES = 1_200_000  # for the components of all ranks, per side of the matrix
_MAP_BYTES = 600_000  # for the maps of all ranks
_EXAMPLE_BYTES = 600_000
_CONSENSUS = 240  # lines of a consensus matrix
_POINTS = 1200  # per line at most; more cannot be seen


def payload(folder: RunFolder) -> dict[str, Any]:
    """All that the page of a run shows."""
    results = folder.results()
    if folder.is_run and not results and folder.in_blocks() is None:
        raise ValueError(f"{folder.path} holds no result yet; fit it first: factormer fit")
    run = folder.description()
    rows, columns = folder.axes()
    n_components = sum(result.rank for result in results)
    reductions = (_reduction(rows, n_components), _reduction(columns, n_components))
    kept = folder.bound()
    bound = None if kept is None else [significant(x, 6) for x in kept]
    choice = folder.choice()
    advice = advised(results, run["options"], choice)
    return {
        "name": run["data"]["name"],
        "data": {k: v for k, v in run["data"].items() if k != "name"},
        "command": run["command"],
        "options": run["options"],
        "made_with": run["made_with"],
        "rows": reductions[0].described(),
        "columns": reductions[1].described(),
        "bound": bound,
        "choice": choice,
        "advice": None if advice is None else advice._asdict(),
        "hidden": _hidden(results, run["options"]),
        "opened": _opened(results, advice),
        "results": [_shown(folder, result, reductions, len(results)) for result in results],
    }


def _opened(results: list[RankResult], advice: Advice | None) -> int:
    """Which of the results is shown first."""
    ranks = [result.rank for result in results]
    return ranks.index(advice.rank) if advice and advice.rank in ranks else bend(results)


def _hidden(results: list[RankResult], options: dict[str, Any]) -> list[tuple[int, float, float]]:
    """Rank, error of hidden entries and its standard error, in the unit of the errors shown."""
    found = validated(results, options["loss"], options.get("holdout") or 0.0)
    return [
        (rank, significant(error, 6), significant(0.0 if math.isnan(spread) else spread, 4))
        for rank, error, spread in ([] if found is None else as_shown(found))
    ]


def _reduction(axis: Axis, n_components: int) -> Reduction:
    if axis.grid is not None:
        return Reduction(axis, min(128 * 128, _BYTES // n_components))
    return Reduction(axis, min(_POINTS, max(_BYTES // (2 * n_components), 50)))


def _shown(
    folder: RunFolder,
    result: RankResult,
    reductions: tuple[Reduction, Reduction],
    n_results: int,
) -> dict[str, Any]:
    needed = ("V_blocks", "fit_blocks", "blocks", "rows", "columns")
    factors, views = folder.factors(result.rank), folder.views(result.rank, *needed)
    sizes = tuple(len(factors[name]) for name in "WH")
    if sizes != (axes := tuple(reduction.axis.size for reduction in reductions)):
        raise damaged(
            folder.rank(result.rank) / "factors.npz", f"has factors of {sizes} rows, not {axes}"
        )
    W, H = _scaled(factors["W"].astype(np.float64), factors["H"].astype(np.float64))
    trace = folder.trace(result.rank)
    side = _MAP_BYTES // (3 * n_results)
    shown = asdict(result) | {
        "trace": [
            [int(t), significant(s, 4), significant(rmse, 6)]
            for t, s, rmse, _ in thinned(list(trace), 300)
        ],
        "components": [_component(c, W, H, reductions) for c in range(result.rank)],
        "alike": {"W": packed(cosines(W)), "H": packed(cosines(H))},
        "maps": {
            key: _map(views[stored], side)
            for key, stored in (("V", "V_blocks"), ("fit", "fit_blocks"), ("residual", "blocks"))
        },
        "rows": _errors(views["rows"], reductions[0]),
        "columns": _errors(views["columns"], reductions[1]),
    }
    if (found := folder.consensus(result.rank)) is not None:
        shown["consensus"] = consensus_matrix(found, _MAP_BYTES // n_results)
    if "examples" in views:
        shown |= _examples(views, reductions[1].axis, n_results)
    return shown


def _component(
    c: int, W: np.ndarray, H: np.ndarray, reductions: tuple[Reduction, Reduction]
) -> dict[str, Any]:
    sides = {}
    for name, factor, reduction in zip("WH", (W, H), reductions, strict=True):
        x = factor[:, c]
        sides[name] = reduction(x)
        if reduction.axis.kind != "image":
            sides[f"{name}_top"] = top(x, reduction.axis, 12)
    return sides


def _errors(x: np.ndarray, reduction: Reduction) -> dict[str, Any]:
    shown = {"values": reduction(x)}
    return shown if reduction.axis.kind == "image" else shown | {"top": top(x, reduction.axis, 6)}


def _map(blocks: np.ndarray, cap: int) -> dict[str, Any]:
    small = shrunk(blocks, cap)
    return {"shape": list(small.shape), **packed(small)}


def consensus_matrix(found: dict[str, np.ndarray], budget: int) -> dict[str, Any]:
    """The matrix, like beside like; with the rows of V that its lines are, if it is not shrunk."""
    order = found["order"]
    ordered = found["matrix"][np.ix_(order, order)].astype(np.float64)
    small = shrunk(ordered, min(_CONSENSUS**2, budget))
    rows = found["samples"][order].tolist() if small.shape == ordered.shape else None
    return {
        "shape": list(small.shape),
        "rows": rows,
        "samples": len(order),
        "cophenetic": significant(float(found["cophenetic"]), 4),
        "runs": len(found["kept"]),
        **packed(small),
    }


def _examples(views: dict[str, np.ndarray], axis: Axis, n_results: int) -> dict[str, Any]:
    """The images that use each component most, the images themselves once each."""
    rows, grid = views["example_rows"], axis.grid
    assert grid is not None
    budget = _EXAMPLE_BYTES // n_results
    per_component = views["examples"]
    while per_component.shape[1] > 1 and len(np.unique(per_component)) * 24 * 24 > budget:
        per_component = per_component[:, :-1]
    wanted = np.unique(per_component)
    cap = min(math.prod(grid), budget // len(wanted))
    values = views["example_values"][np.searchsorted(rows, wanted)].astype(np.float64)
    images = [shrunk(image.reshape(grid), cap) for image in values]
    return {
        "examples": per_component.tolist(),
        "example_images": {int(i): packed(image) for i, image in zip(wanted, images, strict=True)},
        "example_shape": list(images[0].shape),
    }


def _scaled(
    W: Float[np.ndarray, "m r"], H: Float[np.ndarray, "n r"]
) -> tuple[Float[np.ndarray, "m r"], Float[np.ndarray, "n r"]]:
    """The same W Hᵀ with H at most 1, so that W is in the unit of V."""
    peak = np.abs(H).max(axis=0)
    peak[peak == 0] = 1.0
    return W * peak, H / peak


def cosines(X: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "r r"]:
    """Cosines between the columns; 0 for a column of zeros."""
    for size in (lambda X: np.abs(X).max(axis=0), lambda X: np.linalg.norm(X, axis=0)):
        sizes = size(X)  # divided by the largest, so that squares are finite
        X = X / np.where(sizes > 0, sizes, 1.0)
    return (X.T @ X).clip(-1, 1)
