"""Figures from traces and components; matplotlib is imported where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from factormer.run.trace import Trace


def component_images(images: np.ndarray, path: Path, *, title: str = "", columns: int = 8) -> None:
    """Write a grid of components seen as images, (r, height, width), each on its own grey scale."""
    rows = -(-len(images) // columns)
    figure, axes = _subplots(rows, columns, figsize=(1.2 * columns, 1.25 * rows + 0.4))
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, image in zip(axes.flat, images, strict=False):
        ax.imshow(image, cmap="gray_r", interpolation="nearest")
    figure.suptitle(title)
    _save(figure, path)


def convergence(
    traces: Mapping[str, Trace], path: Path, *, level: tuple[str, float] | None = None
) -> None:
    """Write error against iterations and against seconds; `level` draws one more final error."""
    figure, axes = _subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for ax, x in zip(axes.flat, ("iteration", "seconds"), strict=True):
        for label, trace in traces.items():
            trace.plot(ax, x=x, label=label)
        if level is not None:
            ax.axhline(level[1], color="gray", linestyle="--", label=f"{level[0]}, at its end")
        ax.grid(alpha=0.3, which="both")
        for set_formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            set_formatter("{x:g}")
    axes.flat[0].legend()
    axes.flat[1].set_ylabel("")
    _save(figure, path)


def _subplots(rows: int, columns: int, **options: Any) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'factormer[plot]'") from error
    sharey = options.pop("sharey", False)
    figure = Figure(layout="constrained", **options)
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=sharey)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120)
