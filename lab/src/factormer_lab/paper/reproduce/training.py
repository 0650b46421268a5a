"""How the released networks with the paper's layers were trained: one figure, of their curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from factormer_lab.paper.reproduce import style

CURVES = Path(__file__).parents[4] / "results" / "training"
_COLOURS = {0: "#d55e00", 1: "#e69f00", 5: "#56b4e9", 20: "#0072b2"}


def training() -> tuple[dict[str, Any], Any]:
    """The curves in `lab/results/training`, and their figure."""
    curves = {path.stem: json.loads(path.read_text("utf-8")) for path in CURVES.glob("*.json")}
    numbers = {"networks": dict(sorted(curves.items()))}
    return numbers, draw_training(numbers)


def draw_training(numbers: dict[str, Any]) -> Any:
    """For each network a row: the loss, and the errors on both validation sets by update."""
    networks = numbers["networks"]
    with style.figure(11.0, 3.4 * len(networks)) as drawing:
        rows = drawing.subplots(len(networks), 3, squeeze=False)
        for (name, curve), (loss, *sets) in zip(networks.items(), rows, strict=True):
            step, check = curve["loss"]["step"], curve["validation"]
            loss.plot(step, curve["loss"]["loss"], color="black", linewidth=1.2)
            loss.set(title=f"{name}, version {curve['version']}: loss", xlabel="update")
            for ax, size in zip(sets, ("small", "large"), strict=True):
                for k, t in enumerate(check["iterations"]):
                    errors = [row[k] for row in check[size]]
                    look = {"color": _COLOURS[t], "label": _point(name, t)}
                    ax.plot(check["step"], errors, linewidth=1.4, **look)
                ax.set(title=f"{size} validation set", xlabel="update", yscale="log")
                ax.set_ylabel("median RMSE")
            sets[0].legend(fontsize="small")
    return drawing


def _point(name: str, t: int) -> str:
    """Name a point of a trajectory: a start counts from 0, an acceleration from iteration 1."""
    if name.startswith("accel"):
        return f"iteration {t + 1}"
    return f"{t} iteration{'s' if t > 1 else ''} later" if t else "network alone"
