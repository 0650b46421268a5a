"""Charts of a run for papers: one SVG and one PDF of each, drawn by matplotlib.

They show what the page shows, in the same order: error, stability and probability by rank,
convergence, and for each rank the components, the consensus matrix, the cosines and the residual.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from factormer.app.read import Axis
from factormer.app.read.mutations import order_of
from factormer.app.report.payload import cosines, factors_of
from factormer.app.report.views import in_order, specificities, telling
from factormer.app.runs import RankResult, RunFolder
from factormer.app.runs.references import kept_curves, kept_pairs
from factormer.app.runs.resampling import samples_are_columns
from factormer.app.runs.shown import names_of, shown
from factormer.app.runs.trust import as_shown, validated
from factormer.problem.losses import as_loss

_STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "factormer",
}
_CLASSES = {
    "C>A": "#03a4cc",
    "C>G": "#1b1b1b",
    "C>T": "#e32926",
    "T>A": "#9a9a9a",
    "T>C": "#7fae3d",
    "T>G": "#e09d99",
}
_MAP = "GnBu"
_WIDE, _HIGH = 3.4, 2.4  # inches: a column of a journal
_TERMS = 8


def write_figures(folder: RunFolder, place: Path) -> list[Path]:
    """Write every chart of a run to a folder, as SVG and as PDF; return the paths."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError("--figures needs matplotlib: pip install 'factormer[plot]'") from error
    place.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(_STYLE):
        for name, figure in _figures(folder):
            for suffix, metadata in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
                path = place / f"{name}.{suffix}"
                figure.savefig(path, metadata=metadata, bbox_inches="tight")
                written.append(path)
    return written


def _figures(folder: RunFolder) -> Iterator[tuple[str, Any]]:
    results, options = folder.results(), folder.description()["options"]
    if len(results) > 1:
        yield "error-by-rank", _errors(results, options)
    if sum(bool(r.stability) for r in results) > 1:
        yield "stability-by-rank", _stability(results)
    if (choice := folder.choice()) is not None:
        yield "probability-by-rank", _probability(choice)
    yield "convergence", _convergence(folder, results, options)
    for result in results:
        yield from _of_rank(folder, result)


def _axes(wide: float = _WIDE, high: float = _HIGH, rows: int = 1, columns: int = 1) -> Any:
    """A new figure that is not kept by pyplot, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide, high), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _errors(results: list[RankResult], options: dict[str, Any]) -> Any:
    figure, [[ax]] = _axes()
    squares = as_loss(options["loss"]).is_quadratic
    ranks = [r.rank for r in results]
    errors = [r.rmse if squares or r.divergence is None else r.divergence for r in results]
    ax.plot(ranks, errors, "o-", markersize=3, label="the fit")
    bounds = [r.svd_rmse for r in results]
    if squares and None not in bounds:
        ax.plot(ranks, bounds, ":", color="0.5", label="SVD")
    found = validated(results, options["loss"], options.get("holdout") or 0.0)
    if found is not None:
        at, hidden, spread = zip(*as_shown(found), strict=True)
        ax.errorbar(at, hidden, np.nan_to_num(spread), fmt="--", label="hidden entries")
    ax.legend()
    return _ranked(ax, ranks, "RMSE" if squares else "mean divergence", figure)


def _stability(results: list[RankResult]) -> Any:
    figure, [[ax]] = _axes()
    several = [(r.rank, r.stability) for r in results if r.stability]
    ranks = [rank for rank, _ in several]
    ax.plot(ranks, [np.mean(s) for _, s in several], "o-", markersize=3, label="mean")
    ax.plot(ranks, [min(s) for _, s in several], ":", color="0.5", label="least")
    ax.set_ylim(min(0.0, *(min(s) for _, s in several)), 1.02)
    ax.legend()
    return _ranked(ax, ranks, "stability of components", figure)


def _probability(choice: dict[str, Any]) -> Any:
    figure, [[ax]] = _axes()
    ranks = [int(rank) for rank in choice["probabilities"]]
    colours = ["C0" if rank == choice["rank"] else "0.75" for rank in ranks]
    ax.bar(ranks, list(choice["probabilities"].values()), color=colours)
    ax.set_ylim(0, 1)
    return _ranked(ax, ranks, "probability", figure)


def _ranked(ax: Any, ranks: list[int], name: str, figure: Any) -> Any:
    ax.set(xlabel="rank", ylabel=name)
    ax.set_xticks(ranks[:: max(1, len(ranks) // 10)])
    return figure


def _convergence(folder: RunFolder, results: list[RankResult], options: dict[str, Any]) -> Any:
    figure, [[ax]] = _axes()
    squares = as_loss(options["loss"]).is_quadratic
    for result in results:
        t, _, error, _ = folder.trace(result.rank).T
        ax.plot(t, error if squares else error**2 / 2, label=f"rank {result.rank}", linewidth=1)
    ax.set(xlabel="iteration", ylabel="RMSE" if squares else "mean divergence", yscale="log")
    if len(results) > 1:
        ax.legend(ncols=1 + len(results) // 6, fontsize=6)
    return figure


def _of_rank(folder: RunFolder, result: RankResult) -> Iterator[tuple[str, Any]]:
    how, own = shown(folder), f"rank-{result.rank}"
    factors = factors_of(folder, result)
    rows, columns = (in_order(a, X) for a, X in zip(folder.axes(), factors, strict=True))
    swapped = samples_are_columns(rows, columns) if how.swap is None else how.swap
    names = names_of(folder, [result]).get(result.rank, {})
    titles = [names.get(c + 1, f"component {c + 1}") for c in range(result.rank)]
    curves = kept_curves(folder, result.rank)
    pairs = kept_pairs(folder, result.rank)
    for factor, axis, side in ((factors[0], rows, "rows"), (factors[1], columns, "columns")):
        part = "components" if (side == "rows") == swapped else "use"
        labels = titles
        if pairs is not None and side in curves:
            labels = [f"{t}: {p.sum or p.nearest}" for t, p in zip(titles, pairs, strict=True)]
        if part == "components" or axis.kind not in ("labels", "plain"):
            yield f"{own}-{part}", _panels(factor, axis, labels, curves.get(side), part)
    if (found := folder.consensus(result.rank)) is not None:
        order = found["order"]
        yield f"{own}-consensus", _matrix(found["matrix"][np.ix_(order, order)], "share of runs")
    if result.rank > 1:
        profiles = factors[0 if swapped else 1]
        yield f"{own}-cosines", _matrix(cosines(profiles), "cosine")
    residual = folder.views(result.rank, "blocks")["blocks"]
    squares = as_loss(folder.description()["options"]["loss"]).is_quadratic
    yield f"{own}-residual", _matrix(residual, "RMS residual" if squares else "mean loss", None)


def _matrix(values: np.ndarray, label: str, high: float | None = 1.0) -> Any:
    figure, [[ax]] = _axes(3.0, 2.4)
    image = ax.imshow(values, cmap=_MAP, vmin=0, vmax=high, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=ax, label=label)
    ax.set_xticks([])
    ax.set_yticks([])
    return figure


def _panels(
    X: np.ndarray, axis: Axis, titles: list[str], known: np.ndarray | None, part: str
) -> Any:
    """A panel for each component: pictures beside one another, all else below one another."""
    r = X.shape[1]
    across = min(r, 5) if axis.grid is not None else 1 if axis.kind != "labels" else min(r, 4)
    down = -(-r // across)
    wide = {1: 6.8}.get(across, 1.7 * across)
    figure, found = _axes(wide, down * {1: 1.1}.get(across, 1.6), down, across)
    panels = found.ravel()
    for ax in panels[r:]:
        ax.axis("off")
    specific = specificities(X) if axis.kind in ("labels", "plain") else None
    high = float(X.max()) if part == "use" else None  # maps of use share a scale
    palette = _MAP if part == "use" else "gray"  # photographs look right in grey
    image = None
    for c, (ax, title) in enumerate(zip(panels, titles, strict=False)):
        ax.set_title(title, fontsize=7, loc="left")
        if axis.grid is not None:
            image = ax.imshow(X[:, c].reshape(axis.grid), cmap=palette, vmin=0, vmax=high)
            ax.axis("off")
        elif axis.kind == "mutations":
            _bars(ax, X[:, c], axis, None if known is None else known[:, c])
        elif specific is not None:
            terms = telling(X[:, c], specific[:, c], axis, _TERMS)[::-1]
            ax.barh([name[:24] for name, *_ in terms], [x for *_, x in terms])
            ax.tick_params(labelsize=6)
        else:
            _line(ax, X[:, c], axis, None if known is None else known[:, c])
    if image is not None and high is not None:
        figure.colorbar(image, ax=list(panels), shrink=0.8)
    return figure


def _scaled(known: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The reference, as large as the component."""
    squares = float(known @ known)
    return known * (float(known @ x) / squares) if squares else known


def _line(ax: Any, x: np.ndarray, axis: Axis, known: np.ndarray | None) -> None:
    at = np.arange(1, axis.size + 1) if axis.positions is None else np.array(axis.positions)
    ax.fill_between(at, x, alpha=0.2, linewidth=0)
    ax.plot(at, x, linewidth=1)
    if known is not None:
        ax.plot(at, _scaled(known, x), "--", color="C1", linewidth=1)
    unit = f" ({axis.unit})" if axis.unit else ""
    ax.set_xlabel(axis.nouns if axis.positions is None else f"{axis.noun}{unit}")
    ax.label_outer()
    ax.set_ylim(bottom=min(0.0, float(x.min())))


def _bars(ax: Any, x: np.ndarray, axis: Axis, known: np.ndarray | None) -> None:
    """The 96 types of mutations in their usual order and colours."""
    order = np.array(order_of(axis.labels))
    group = len(order) // len(_CLASSES)
    at = np.arange(len(order))
    ax.bar(at, x[order], color=np.repeat(list(_CLASSES.values()), group), width=0.8)
    if known is not None:
        ax.plot(at, _scaled(known, x)[order], "_", color="0.2", markersize=3)
    ax.set_xlim(-1, len(order))
    ax.set_xticks((np.arange(len(_CLASSES)) + 0.5) * group, list(_CLASSES))
    ax.tick_params(axis="x", length=0)
