"""Figures 5 and 8 to 10: histogram, Yale faces, Jasper Ridge, and the faces of the appendix."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense
from factormer.problem.problem import Problem
from factormer.starts import NNDSVD
from factormer_lab.paper.reproduce import style
from factormer_lab.paper.reproduce.contestants import (
    ALL,
    BASELINE,
    DRAWN_REAL,
    N_ITER,
    PAPER,
    RANK,
    asked,
    merged,
)
from factormer_lab.paper.reproduce.density import entry_density
from factormer_lab.paper.reproduce.measure import costs, run

TITLES = {"yale": "Yale faces", "jasper": "Jasper Ridge"}
BASIS_ITERATION = 30
_LEARNED_BASIS = "basis: {} + {} iterations"


def real(
    name: str,
    V: Float[Tensor, "pixels images"],
    *,
    n_iter: int = N_ITER,
    images: bool = True,
    only: Collection[str] = (),
    stored: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Any]:
    """The numbers and the figure of a real matrix of mean 1, with or without images of it."""
    problem = Problem(Dense(V), RANK)
    x0 = NNDSVD()(problem, torch.Generator())
    rows, errors, basis = {}, {}, None
    for contestant in asked(ALL, only):
        result = run(contestant, problem, x0, n_iter=n_iter, keep=(BASIS_ITERATION,))
        errors[contestant.key] = result.rmse
        rows[contestant.key] = {
            "label": contestant.label,
            "rmse": result.rmse.tolist(),
            "ratio": (result.rmse / errors[BASELINE.key]).tolist(),
            "kept": result.kept,
            "seconds": costs(contestant, result),
        }
        if contestant is PAPER and images:  # figures 8c and 9c
            basis = result.points[BASIS_ITERATION].W
    if stored:
        rows = merged(rows, stored["contestants"])
    numbers = {"set": name, "shape": list(V.shape), "basis": PAPER.label, "contestants": rows}
    return numbers, draw_real(numbers, basis)


def draw_real(numbers: dict[str, Any], W: Float[Tensor, "pixels r"] | None) -> Any:
    """Curves, ratios to AO-ADMM, and the basis images, if there are any."""
    rows = numbers["contestants"]
    with style.figure(14.0 if W is not None else 8.5, 4.0) as drawing:
        sides = drawing.subfigures(1, 2 if W is not None else 1, squeeze=False)[0]
        left = sides[0]
        curves, ratios = left.subplots(1, 2)
        for contestant in DRAWN_REAL:
            style.line(curves, contestant.key, rows[contestant.key]["rmse"])
            if contestant is not BASELINE:
                style.line(ratios, contestant.key, rows[contestant.key]["ratio"])
        curves.set(title="a) error", xlabel="iteration", ylabel="RMSE", yscale="log")
        _plain_ticks(curves)
        shown = [rows[c.key] for c in DRAWN_REAL]
        curves.set_ylim(*_range([row["rmse"] for row in shown]))
        style.ratio_axes(ratios, "b) error beside AO-ADMM's")
        ratios.set(yscale="log")
        _plain_ticks(ratios)
        ratios.set_ylim(*_range([row["ratio"] for row in shown]))
        names = curves.get_legend_handles_labels()
        left.legend(*names, loc="outside lower center", ncols=3, fontsize=7.5)
        if W is not None:
            _basis(sides[1], numbers["basis"], W)
        m, n = numbers["shape"]
        drawing.suptitle(f"{TITLES[numbers['set']]}, {m} × {n}, r = {RANK}", fontsize=11)
    return drawing


def _basis(part: Any, label: str, W: Float[Tensor, "pixels r"]) -> None:
    """Components as images, in two rows that meet in the middle."""
    upper, lower = part.subplots(2, RANK // 2)
    style.images([*upper, *lower], W)
    for row, side in ((upper, "S"), (lower, "N")):
        for ax in row:
            ax.set_anchor(side)
    part.suptitle(f"c) {_LEARNED_BASIS.format(label, BASIS_ITERATION)}", fontsize=9.5)


def faces(V: Float[Tensor, "pixels images"]) -> tuple[dict[str, Any], Any]:
    """Basis images of NNDSVD alone, and of the network followed by 2 and by 30 iterations."""
    problem = Problem(Dense(V), RANK)
    x0 = NNDSVD()(problem, torch.Generator())
    result = run(PAPER, problem, x0, n_iter=BASIS_ITERATION, keep=(2, BASIS_ITERATION))
    panels = {"a) basis: NNDSVD alone": x0}
    for letter, t in zip("bc", (2, BASIS_ITERATION), strict=True):
        panels[f"{letter}) {_LEARNED_BASIS.format(PAPER.label, t)}"] = result.points[t]
    numbers = {"rmse": {title: problem.rmse(x).item() for title, x in panels.items()}}
    with style.figure(11.0, 4.6) as drawing:
        for part, (title, x) in zip(drawing.subfigures(3, 1), panels.items(), strict=True):
            style.images(part.subplots(1, RANK), x.W)
            part.suptitle(f"{title}, RMSE {problem.rmse(x).item():.3f}", fontsize=9.5)
    return numbers, drawing


def histogram(matrices: dict[str, Tensor]) -> tuple[dict[str, Any], Any]:
    """Pixel intensities of the real matrices, and the density of a synthetic entry."""
    edges = np.linspace(0, 4, 81)
    middles = (edges[:-1] + edges[1:]) / 2
    numbers: dict[str, Any] = {"edges": edges.tolist(), "sets": {}}
    numbers["theory"] = entry_density(middles, RANK).tolist()
    for name, V in matrices.items():
        values = V.flatten().numpy()
        counts, _ = np.histogram(values, edges)
        numbers["sets"][name] = {
            "density": (counts / (len(values) * np.diff(edges))).tolist(),
            "standard deviation": float(values.std()),
            "share above the last edge": float((values > edges[-1]).mean()),
        }
    return numbers, draw_histogram(numbers)


def draw_histogram(numbers: dict[str, Any]) -> Any:
    """One panel per matrix, with the same curve in both."""
    edges = np.array(numbers["edges"])
    with style.figure(8.0, 3.2) as drawing:
        axes = drawing.subplots(1, len(numbers["sets"]), sharey=True, squeeze=False)[0]
        for ax, (name, row) in zip(axes, numbers["sets"].items(), strict=True):
            ax.stairs(row["density"], edges, fill=True, color="#56b4e9", label="pixels")
            theory = f"entry of a synthetic V, r = {RANK}"
            ax.plot((edges[:-1] + edges[1:]) / 2, numbers["theory"], color="#d55e00", label=theory)
            ax.set(title=TITLES[name], xlabel="intensity (mean 1)", xlim=(edges[0], edges[-1]))
            ax.legend()
        axes[0].set_ylabel("density")
    return drawing


def _range(curves: list[list[float]]) -> tuple[float, float]:
    """Limits that show these curves and leave out what others do beyond."""
    return 0.94 * float(np.nanmin(curves)), 1.06 * float(np.nanmax(curves))


def _plain_ticks(ax: Any) -> None:
    """Label a logarithmic axis of less than two decades by plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
