"""Axes to draw on; matplotlib is imported where it is used."""

from __future__ import annotations

from typing import Any


def axes_of(ax: Any, columns: int = 1, *, wide: float = 4.5, high: float = 3.6) -> Any:
    """The axes given, or new ones: one, or an array of several side by side."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install 'factormer[plot]'") from error
    size = (wide * columns + 1, high)
    _, axes = plt.subplots(1, columns, figsize=size, layout="constrained", squeeze=False)
    return axes[0, 0] if columns == 1 else axes[0]
