"""The picture of the README: error against seconds, beside scikit-learn's two solvers.

The contestants race as in `races`; the shortest time of all rounds counts, which other work on the
machine has disturbed least. `make readme-picture` runs it, all on one thread.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from factormer_lab.bench.cases import Case, find
from factormer_lab.bench.environment import environment
from factormer_lab.bench.races import Point, Stable

OUT = Path("docs/pictures")
LEAST = 1e-4  # of the best error; what is nearer to it is drawn there
TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
THEMES = {"light": ("#1f2328", "#ffffff"), "dark": ("#e6edf3", "#0d1117")}
CONTESTANTS = {
    "factormer": "factormer",
    "sklearn-cd init=None": "scikit-learn, cd",
    "sklearn-mu init=None": "scikit-learn, mu",
}
TITLES = {"digits": "digits, 1797×64, rank 16", "sparse-factors": "synthetic, 2000×1000, rank 20"}
COLOURS = {"factormer": "#d55e00", "scikit-learn, cd": "#0072b2", "scikit-learn, mu": "#009e73"}
DARK = {"factormer": "#ff8c42", "scikit-learn, cd": "#56b4e9", "scikit-learn, mu": "#2fcf9f"}


def measure(case: Case, seconds: float, rounds: int) -> dict[str, list[Point]]:
    """Return, for each contestant, its points with the shortest time of all rounds."""
    found: dict[str, dict[int, Point]] = {name: {} for name in CONTESTANTS}
    for number in range(rounds):
        stable = Stable(list(CONTESTANTS))
        curves, _ = stable.race(case, case.load(), "frobenius", 1000, seconds)
        stable.close()
        for name, curve in curves.items():
            best = found[name]
            for point in curve:
                least = min(point.seconds, best.get(point.k, point).seconds)
                best[point.k] = point._replace(seconds=least)
        print(f"{case.name}: round {number + 1} of {rounds}", flush=True)
    return {CONTESTANTS[name]: list(best.values()) for name, best in found.items()}


def draw(results: dict[str, dict[str, list[Any]]], theme: str, seconds: float) -> Figure:
    """One panel a matrix: percent above the best error that anyone reached, against seconds."""
    ink, paper = THEMES[theme]
    style = {key: ink for key in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")}
    style |= {"axes.edgecolor": ink, "axes.facecolor": paper, "figure.facecolor": paper}
    with rc_context({"font.size": 10, "legend.frameon": False, **style}):  # pyright: ignore
        figure = Figure(figsize=(8.6, 3.2), layout="constrained")
        panels = figure.subplots(1, len(results), squeeze=False)[0]
        for ax, (case, curves) in zip(panels, results.items(), strict=True):
            best = min(error for curve in curves.values() for _, _, error in curve)
            for name, curve in curves.items():
                _, x, errors = np.array([p for p in curve if p[1] <= seconds]).T
                x = np.minimum.accumulate(x[::-1])[::-1]  # more iterations take no less
                y = 100 * np.maximum(errors / best - 1, LEAST)
                colour = (COLOURS if theme == "light" else DARK)[name]
                width = 2.6 if name == "factormer" else 1.6
                ax.loglog(x, y, "o-", color=colour, linewidth=width, markersize=3, label=name)
            ax.set_title(TITLES.get(case, case), fontsize=10)
            ax.set_xlabel("seconds, start included")
            ax.grid(alpha=0.2, which="major", color=ink)
            ax.spines[["top", "right"]].set_visible(False)
            low, high = ax.get_xlim()
            ax.set_xticks([x for x in TICKS if low < x < high], minor=False)
            ax.set_xticks([], minor=True)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_major_formatter("{x:g} %")
        panels[0].set_ylabel("error above the best")
        panels[0].legend(loc="lower right", bbox_to_anchor=(1, 0.08))
    return figure


def main() -> None:
    """Measure, write the numbers, draw for light and for dark pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=["digits", "sparse-factors"])
    parser.add_argument("--seconds", type=float, default=2.5, help="longest call")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found = {
        case.name: measure(case, options.seconds, options.rounds) for case in find(options.cases)
    }
    options.out.mkdir(parents=True, exist_ok=True)
    numbers = {"iterations, seconds, rmse": found, "environment": environment()}
    (options.out / "readme.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    for theme in THEMES:
        path = options.out / f"readme-{theme}.png"
        draw(found, theme, options.seconds).savefig(path, dpi=150, metadata={"Software": None})
        print(path)


if __name__ == "__main__":
    main()
