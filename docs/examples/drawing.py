"""How the pictures and sounds of the examples look, and where they are saved: next to these."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from scipy.io import wavfile

BESIDE = Path(__file__).parent.resolve()
FOLDER = BESIDE  # of what is drawn and heard
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a")

mpl.rcParams.update(
    {
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": mpl.cycler(color=COLOURS),
        "legend.frameon": False,
        "figure.facecolor": "white",
        "savefig.dpi": 140,
    }
)


class Made(NamedTuple):
    """A picture or sound that an example made, for the page that shows it."""

    path: Path
    caption: str


made: list[Made] = []


def grid(rows: int, columns: int, *, width: float, height: float, **options: Any) -> Any:
    """A figure with a grid of axes, outside pyplot: no window, no global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def show_image(ax: Any, image: np.ndarray, title: str = "", **options: Any) -> Any:
    """An image without ticks."""
    drawn = ax.imshow(image, interpolation="nearest", **options)
    ax.set_axis_off()
    ax.set_title(title)
    return drawn


def save(figure: Figure, name: str, caption: str) -> None:
    """Write a picture to `pictures/`."""
    path = FOLDER / "pictures" / name
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    made.append(Made(path, caption))


def save_sound(samples: np.ndarray, rate: int, name: str, caption: str) -> None:
    """Write a sound to `sounds/`, 16 bits, as loud as it can be."""
    path = FOLDER / "sounds" / name
    path.parent.mkdir(exist_ok=True)
    loud = 0.9 * samples / np.abs(samples).max()
    wavfile.write(path, rate, np.round(32767 * loud).astype(np.int16))
    made.append(Made(path, caption))
