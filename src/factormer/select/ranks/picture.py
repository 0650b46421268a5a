"""The picture of a choice; matplotlib is imported where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from factormer.select.ranks.choice import Choice

_OURS, _OTHERS, _PALE = "C0", "0.35", "0.8"


def drawn(choice: Choice) -> Any:
    """Four panels over the same ranks, with the choice marked in each."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'factormer[plot]'") from error
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    _probabilities(axes[0, 0], choice)
    _rules(axes[0, 1], choice)
    _errors(axes[1, 0], choice)
    _noise(axes[1, 1], choice)
    for ax in axes.flat:
        ax.axvline(choice.rank, color=_OURS, alpha=0.25, linewidth=6, zorder=0)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[1]:
        ax.set_xlabel("number of components")
    sure = "clear" if choice.clear else "not clear"
    figure.suptitle(f"{choice.rank} components ({sure})")
    return figure


def _probabilities(ax: Any, choice: Choice) -> None:
    ranks = list(choice.probabilities)
    colors = [_OURS if rank == choice.rank else _PALE for rank in ranks]
    ax.bar(ranks, list(choice.probabilities.values()), color=colors)
    ax.set_ylim(0, 1)
    ax.set_title("probability, by the network", fontsize="medium")


def _rules(ax: Any, choice: Choice) -> None:
    names = list(choice.criteria)[::-1]
    chosen = [choice.criteria[name].rank for name in names]
    ax.scatter(chosen, range(len(names)), color=_OTHERS, zorder=3)
    ax.set_yticks(range(len(names)), names)
    ax.grid(axis="y", alpha=0.3)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.set_title("what classical rules choose", fontsize="medium")


def _errors(ax: Any, choice: Choice) -> None:
    ranks, curves = list(choice.probabilities), choice.curves
    ax.plot(ranks, curves["error"], "o-", color=_OURS, markersize=4, label="factorization")
    ax.plot(ranks, curves["svd_error"], "--", color=_OTHERS, label="SVD, the least possible")
    lines = list(ax.lines)
    scales = [ax]
    if "cross-validation" in choice.criteria:
        held = choice.criteria["cross-validation"].values
        scales.append(ax.twinx())
        lines += scales[1].plot(
            ranks, held, "s:", color="C1", markersize=4, label="loss of hidden entries (right)"
        )
        scales[1].spines["top"].set_visible(False)
    for scale in scales:
        scale.set_yscale("log")
        scale.yaxis.set_major_formatter("{x:g}")
        scale.yaxis.set_minor_formatter("")
    ax.set_title("error relative to V", fontsize="medium")
    ax.legend(handles=lines, frameon=False, fontsize="small")


def _noise(ax: Any, choice: Choice) -> None:
    ranks, curves = list(choice.probabilities), choice.curves
    ax.plot(ranks, curves["over_noise"], "o-", color=_OURS, markersize=4, label="size over noise")
    ax.axhline(1, color=_OTHERS, linewidth=0.8, linestyle=":")
    ax.plot(ranks, curves["stability"], "^--", color="C2", markersize=4, label="stability")
    ax.set_ylim(0, None)
    ax.set_title("does the last one stand out, are all found again?", fontsize="medium")
    ax.legend(frameon=False, fontsize="small")
