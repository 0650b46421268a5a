"""All that the page shows of a run, small enough for one file."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from factormer.app.read import Axis
from factormer.app.report.private import options_without_folders, without_folders
from factormer.app.report.views import (
    Reduction,
    in_order,
    packed,
    shrunk,
    significant,
    specificities,
    telling,
    thinned,
    top,
)
from factormer.app.runs import RankResult, RunFolder
from factormer.app.runs.advice import ASKED, Advice, advised, bend
from factormer.app.runs.constraints import parse_all
from factormer.app.runs.references import Pair, kept_curves, kept_pairs
from factormer.app.runs.resampling import samples_are_columns
from factormer.app.runs.shown import names_of, shown
from factormer.app.runs.stored import damaged
from factormer.app.runs.trust import as_shown, validated
from factormer.app.runs.units import summed_side
from factormer.problem.penalties import Simplex

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
    run, how = folder.description(), shown(folder)
    last = factors_of(folder, results[-1])  # by which order is seen
    rows, columns = (
        in_order(axis if how.labels else replace(axis, labels=None), X)
        for axis, X in zip(folder.axes(), last, strict=True)
    )
    n_components = sum(result.rank for result in results)
    reductions = (_reduction(rows, n_components), _reduction(columns, n_components))
    kept = folder.bound()
    bound = None if kept is None else [significant(x, 6) for x in kept]
    choice = folder.choice()
    advice = advised(results, run["options"], choice)
    names = names_of(folder, results)
    return {
        "name": run["data"]["name"],
        "folder": folder.path.name or "RUN",
        "data": {k: v for k, v in run["data"].items() if k not in ("name", "rows", "columns")},
        "command": without_folders(run["command"]),
        "options": options_without_folders(run["options"]),
        "made_with": run["made_with"],
        "rows": reductions[0].described(),
        "columns": reductions[1].described(),
        "sums": _sums(folder),
        "swapped": samples_are_columns(rows, columns) if how.swap is None else how.swap,
        "names": {
            str(rank): {str(c): name for c, name in of.items()} for rank, of in names.items()
        },
        "bound": bound,
        "choice": choice,
        "advice": None if advice is None else _advice(advice),
        "hidden": _hidden(results, run["options"]),
        "opened": _opened(results, advice),
        "V": _map(folder.views(results[0].rank, "V_blocks")["V_blocks"], _map_cap(len(results))),
        "results": [_shown(folder, result, reductions, len(results)) for result in results],
    }


def factors_of(folder: RunFolder, result: RankResult) -> tuple[np.ndarray, np.ndarray]:
    """W, in the unit of V, and H, at most 1, of the sizes that the run has; as stored if shares."""
    stored = folder.factors(result.rank)
    sizes, axes = tuple(len(stored[name]) for name in "WH"), folder.axes()
    if sizes != (wanted := tuple(axis.size for axis in axes)):
        raise damaged(
            folder.rank(result.rank) / "factors.npz", f"has factors of {sizes} rows, not {wanted}"
        )
    W, H = (stored[name].astype(np.float64) for name in "WH")
    return (W, H) if _sums(folder) else _scaled(W, H)


def _sums(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """The factors whose rows, or columns, have a sum, which their numbers show: W, H, or both."""
    options = folder.description()["options"]
    if options.get("scale") == "sum":
        return {summed_side(*folder.axes()): asdict(Simplex(by="columns"))}
    asked = {name: parse_all(options.get(f"regularize_{name.lower()}") or ()) for name in "WH"}
    return {
        name: asdict(term)
        for name, terms in asked.items()
        for term in terms or ()
        if isinstance(term, Simplex)
    }


def _advice(advice: Advice) -> dict[str, Any]:
    """The advice, with what each rule asks where several answer."""
    rules = [{**rule._asdict(), "asks": ASKED[rule.by]} for rule in advice.rules]
    return advice._asdict() | {"rules": rules if len(rules) > 1 else []}


def _map_cap(n_results: int) -> int:
    return _MAP_BYTES // (4 * n_results)


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
    views = folder.views(result.rank, "fit_blocks", "blocks", "rows", "columns")
    W, H = factors_of(folder, result)
    unit = math.sqrt(result.mean_weight or 1.0)  # errors of a trace are not weighted means
    told = asdict(result) | {
        "trace": [
            [int(t), significant(s, 4), significant(rmse / unit, 6)]
            for t, s, rmse, _ in thinned(list(folder.trace(result.rank)), 300)
        ],
        "components": _components(W, H, reductions),
        "alike": {"W": packed(cosines(W)), "H": packed(cosines(H))},
        "maps": {
            key: _map(views[stored], _map_cap(n_results))
            for key, stored in (("fit", "fit_blocks"), ("residual", "blocks"))
        },
        "rows": _errors(views["rows"], reductions[0]),
        "columns": _errors(views["columns"], reductions[1]),
    }
    if (found := folder.consensus(result.rank)) is not None:
        told["consensus"] = consensus_matrix(found, _MAP_BYTES // n_results)
    if (pairs := kept_pairs(folder, result.rank)) is not None:
        told["references"] = _references(folder, pairs, (W, H), reductions)
    if "examples" in views:
        told |= _examples(views, reductions[1].axis, n_results)
    return told


def _components(
    W: np.ndarray, H: np.ndarray, reductions: tuple[Reduction, Reduction]
) -> list[dict[str, Any]]:
    """Each component over both axes; of entries with names, the telling and the greatest ones."""
    found: list[dict[str, Any]] = [{} for _ in range(W.shape[1])]
    for name, factor, reduction in zip("WH", (W, H), reductions, strict=True):
        specific = specificities(factor) if reduction.is_sorted else factor
        for c, sides in enumerate(found):
            x = factor[:, c]
            sides[name] = reduction(x)
            if reduction.is_sorted:
                sides[f"{name}_telling"] = telling(x, specific[:, c], reduction.axis, 12)
                sides[f"{name}_top"] = top(x, reduction.axis, 8)
    return found


def _references(
    folder: RunFolder,
    pairs: list[Pair],
    factors: tuple[np.ndarray, np.ndarray],
    reductions: tuple[Reduction, Reduction],
) -> list[dict[str, Any]]:
    """What each component was compared with, and its curve beside that of the component."""
    found = [
        {
            "text": str(pair),
            "name": pair.nearest,
            "cosine": significant(pair.nearest_cosine, 4),
            "is_close": pair.reference is not None,
            "sum": pair.sum,
            "sum_cosine": None if pair.sum_cosine is None else significant(pair.sum_cosine, 4),
        }
        for pair in pairs
    ]
    curves = kept_curves(folder, len(pairs))
    for name, X, reduction in zip("WH", factors, reductions, strict=True):
        side = curves.get("rows" if name == "W" else "columns")
        if side is None or reduction.is_sorted or side.shape != X.shape:
            continue
        squares = np.square(side).sum(axis=0)
        scaled = side * ((side * X).sum(axis=0) / np.where(squares > 0, squares, 1.0))
        for told, x in zip(found, scaled.T, strict=True):
            told[name] = reduction(x)
    return found


def _errors(x: np.ndarray, reduction: Reduction) -> dict[str, Any]:
    values = {"values": reduction(x)}
    return values | {"top": top(x, reduction.axis, 6)} if reduction.is_sorted else values


def _map(blocks: np.ndarray, cap: int) -> dict[str, Any]:
    small = shrunk(blocks, cap)
    return {"shape": list(small.shape), **packed(small, depth=16)}


def consensus_matrix(found: dict[str, np.ndarray], budget: int) -> dict[str, Any]:
    """The matrix, like beside like; with the rows of V that its lines are, if it is not shrunk.

    They are columns of V where these are the samples.
    """
    order = found["order"]
    ordered = found["matrix"][np.ix_(order, order)].astype(np.float64)
    small = shrunk(ordered, min(_CONSENSUS**2, budget))
    rows = found["samples"][order].tolist() if small.shape == ordered.shape else None
    return {
        "shape": list(small.shape),
        "rows": rows,
        "side": "columns" if found.get("of_columns", False) else "rows",
        "samples": len(order),
        "cophenetic": significant(float(found["cophenetic"]), 4),
        "runs": len(found["kept"]),
        "errors": [significant(e, 6) for e in found["errors"][found["kept"].astype(bool)]],
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
    """Scale H to at most 1, so that W is in the unit of V, and leave W Hᵀ as it is."""
    peak = np.abs(H).max(axis=0)
    peak[peak == 0] = 1.0
    return W * peak, H / peak


def cosines(X: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "r r"]:
    """Cosines between the columns; 0 for a column of zeros."""
    for size in (lambda X: np.abs(X).max(axis=0), lambda X: np.linalg.norm(X, axis=0)):
        sizes = size(X)  # divided by the largest, so that squares are finite
        X = X / np.where(sizes > 0, sizes, 1.0)
    return (X.T @ X).clip(-1, 1)
