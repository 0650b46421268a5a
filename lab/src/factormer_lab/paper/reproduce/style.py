"""How the figures look: one colour per contestant, from Okabe & Ito's palette."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from factormer_lab.paper.reproduce.contestants import LABELS

RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
COLOURS = {
    "ao-admm": "#000000",
    "ao-admm-trace": "#8a8a8a",
    "init-r10": "#0072b2",
    "init-r10-paper": "#009e73",
    "accel-r10-paper": "#7a3b00",
    "accel-r10": "#d55e00",
    "init-r10-always": "#56b4e9",
    "accel-r10-always": "#e69f00",
    "init-r10-later": "#cc79a7",
    "accel-r10-later": "#b8a900",
}
DASHES: dict[str, Any] = {
    "ao-admm-trace": "--",
    "init-r10-paper": "-.",
    "accel-r10-paper": "-.",
    "accel-r10": (0, (5, 1.2)),
    "init-r10-always": ":",
    "accel-r10-always": ":",
    "init-r10-later": (0, (1, 1)),
    "accel-r10-later": (0, (1, 1)),
}
WIDTHS = {"ao-admm": 3.0, "init-r10": 2.0}  # where curves coincide, all of them are seen


def check_matplotlib() -> None:
    """Raise if figures cannot be drawn, before any time is spent."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib; install it with: pip install 'factormer[plot]'"
        ) from error


@contextmanager
def figure(width: float, height: float) -> Iterator[Any]:
    """A figure in the style of all, outside pyplot: no window, no global state."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RC):
        yield Figure(figsize=(width, height), layout="constrained")


def save(drawing: Any, path: Path) -> None:
    """Write a PNG small enough to be kept in a repository."""
    drawing.savefig(path, dpi=110, metadata={"Software": None})


def line(
    ax: Any, key: str, values: Sequence[float | None], *, x: Any = None, **options: Any
) -> None:
    """The curve of one contestant; what is not finite is a gap."""
    y = np.array(values, dtype=float)
    options |= {"color": COLOURS[key], "linestyle": DASHES.get(key, "-"), "label": LABELS[key]}
    options["linewidth"] = WIDTHS.get(key, 1.6)
    ax.plot(np.arange(len(y)) if x is None else x, y, **options)


def band(ax: Any, key: str, quartiles: dict[str, Any]) -> None:
    """The median of one contestant with its quartile band."""
    q1, q3 = (np.array(quartiles[q], dtype=float) for q in ("q1", "q3"))
    ax.fill_between(np.arange(len(q1)), q1, q3, color=COLOURS[key], alpha=0.15, linewidth=0)
    line(ax, key, quartiles["median"])


def ratio_axes(ax: Any, title: str) -> None:
    """Label an axis of ratios to AO-ADMM; below the line at 1 is better."""
    ax.axhline(1, color="black", linewidth=0.9, zorder=1)
    ax.set(title=title, xlabel="iteration", ylabel="RMSE / RMSE of AO-ADMM, ρ = 1")


def images(axes: Iterable[Any], columns: Any) -> None:
    """Each column of a pixels × components array as a square grey image, each on its own scale.

    White is the 99th percentile: a few bright pixels do not darken the rest.
    """
    side = round(len(columns) ** 0.5)
    for ax, column in zip(axes, np.asarray(columns).T, strict=True):
        top = np.quantile(column, 0.99) or 1.0  # a component may be zero
        ax.imshow(
            column.reshape(side, side), cmap="gray", vmin=0, vmax=top, interpolation="nearest"
        )
        ax.set_axis_off()
