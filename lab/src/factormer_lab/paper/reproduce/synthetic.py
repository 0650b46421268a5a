"""Figures 6 and 7: the two validation sets, and the comparison of our layers with the paper's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from factormer_lab.paper.reproduce import style
from factormer_lab.paper.reproduce.contestants import (
    ACCEL,
    ACCEL_ALWAYS,
    BASELINE,
    DRAWN,
    IN_FIGURES,
    INIT,
    N_ITER,
    PAPER,
    PAPER_ACCEL,
    Contestant,
    asked,
    merged,
)
from factormer_lab.paper.reproduce.measure import costs, quartiles, run_stack
from factormer_lab.train.synthetic import validation_set

ABLATION_ITERATIONS = (0, 1, 2, 5, 10, 20)


def measure_set(name: str, contestants: Sequence[Contestant], *, n_iter: int) -> dict[str, Any]:
    """Quartiles of error, and of its pairwise ratio to AO-ADMM's, of each contestant on a set."""
    stack = validation_set(name)
    baseline = run_stack(BASELINE, stack, n_iter=n_iter)
    rows = {}
    for contestant in contestants:
        run = baseline if contestant is BASELINE else run_stack(contestant, stack, n_iter=n_iter)
        rows[contestant.key] = {
            "label": contestant.label,
            "rmse": quartiles(run.rmse),
            "ratio": quartiles(run.rmse / baseline.rmse),
            "kept": run.kept,
            "seconds": costs(contestant, run),
        }
    return {"set": name, "n_problems": len(stack), "n_iter": n_iter, "contestants": rows}


def synthetic(
    name: str,
    *,
    n_iter: int = N_ITER,
    only: Collection[str] = (),
    stored: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Any]:
    """The numbers and the figure of a validation set, "small" or "large"."""
    numbers = measure_set(name, asked([*IN_FIGURES, ACCEL_ALWAYS], only), n_iter=n_iter)
    if stored:
        numbers["contestants"] = merged(numbers["contestants"], stored["contestants"])
    return numbers, draw_synthetic(numbers)


def draw_synthetic(numbers: dict[str, Any]) -> Any:
    """Four panels: RMSE, log₁₀ RMSE, and the two ratios to AO-ADMM."""
    rows = numbers["contestants"]
    with style.figure(13.5, 3.9) as drawing:
        linear, log, by_init, by_accel = drawing.subplots(1, 4)
        for contestant in DRAWN:
            style.band(linear, contestant.key, rows[contestant.key]["rmse"])
            style.band(log, contestant.key, rows[contestant.key]["rmse"])
        start = rows[BASELINE.key]["rmse"]["median"][1]
        linear.set(title="a) error", xlabel="iteration", ylabel="RMSE", ylim=(0, 1.1 * start))
        log.set(title="b) error, logarithmic", xlabel="iteration", ylabel="RMSE", yscale="log")
        for key in (PAPER.key, INIT.key):
            style.band(by_init, key, rows[key]["ratio"])
        style.ratio_axes(by_init, "c) learned initialization")
        for key in (PAPER_ACCEL.key, ACCEL.key):
            style.band(by_accel, key, rows[key]["ratio"])
        style.ratio_axes(by_accel, "d) learned acceleration")
        for ax in (by_init, by_accel):
            ax.set(yscale="log")
        _legend(drawing, [log, by_accel])
        drawing.suptitle(
            f"{numbers['n_problems']} matrices of the {numbers['set']} validation set: "
            "median and quartiles",
            fontsize=11,
        )
    return drawing


def ablation() -> tuple[dict[str, Any], Any]:
    """Refining layers against the paper's, both by recipes of ours, on both sets."""
    sets = {}
    for name in ("small", "large"):
        contestants = (BASELINE, PAPER, INIT)
        measured = measure_set(name, contestants, n_iter=max(ABLATION_ITERATIONS))["contestants"]
        sets[name] = {
            key: {q: [row["rmse"][q][t] for t in ABLATION_ITERATIONS] for q in row["rmse"]}
            for key, row in measured.items()
        }
    numbers = {"iterations": list(ABLATION_ITERATIONS), "sets": sets}
    return numbers, draw_ablation(numbers)


def draw_ablation(numbers: dict[str, Any]) -> Any:
    """One panel per set: medians at a few iterations, with bars from quartile to quartile."""
    iterations = numbers["iterations"]
    with style.figure(8.0, 3.6) as drawing:
        axes = drawing.subplots(1, 2, sharey=True)
        for ax, (name, rows) in zip(axes, numbers["sets"].items(), strict=True):
            for shift, (key, row) in zip((-0.12, 0.0, 0.12), rows.items(), strict=True):
                x = [k + shift for k in range(len(iterations))]
                style.line(ax, key, row["median"], x=x, marker="o", markersize=4)
                ax.vlines(x, row["q1"], row["q3"], color=style.COLOURS[key], linewidth=1)
            ax.set(title=f"{name} validation set", xlabel="iteration", yscale="log")
            ax.set_xticks(range(len(iterations)), iterations)
        axes[0].set_ylabel("RMSE, median and quartiles")
        _legend(drawing, axes[:1])
    return drawing


def _legend(drawing: Any, axes: Iterable[Any]) -> None:
    """One legend for all panels, below them."""
    entries = [ax.get_legend_handles_labels() for ax in axes]
    named = {label: handle for entry in entries for handle, label in zip(*entry, strict=True)}
    drawing.legend(
        named.values(), named.keys(), loc="outside lower center", ncols=min(len(named), 3)
    )
