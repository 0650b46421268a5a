"""The answers of run.py as a table and a picture: who finds planted ranks, and who knows it.

    make bench NAME=rank-report ARGS="ANSWERS --out DIR"

ANSWERS is the folder that run.py wrote. DIR gets rank.md (exact and within one, by rule), rank.png
(is a probability of 80 % right in 80 % of the cases, and is what is called clear exact?) and
rank.json, the numbers of both.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from factormer_lab.bench.environment import environment
from factormer_lab.bench.rank.run import rates

_BINS = np.array([0.0, 0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0])
_GROUPS = {
    "small": "ranks 1–12 of 1–16",
    "wide": "ranks 5–40 of 1–45",
    "ladder": "ranks 3–20 of 1–24, noise 0–20 %",
    "gaps": "like small, 5–30 % missing",
    "large": "1000–3000 × 500–1500",
    "overlapping": "bumps that coincide",
}
_PROMISED = 0.95  # of clear choices, exact


def answers(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what run.py kept, by group, in the order of the groups."""
    found = {}
    for group in _GROUPS:
        path = folder / f"{group}.jsonl"
        if path.is_file():
            found[group] = [json.loads(line) for line in path.read_text().splitlines()]
    if not found:
        raise SystemExit(f"{folder} holds no answers; make them first: make bench NAME=rank")
    return found


def curve(p: np.ndarray, right: np.ndarray) -> list[dict[str, float]]:
    """Count how often choices were right, by probability, with a 95 % interval (Wilson)."""
    at = np.clip(np.searchsorted(_BINS, p, side="right") - 1, 0, len(_BINS) - 2)
    bins = []
    for b in range(len(_BINS) - 1):
        count = int((at == b).sum())
        if count:
            low, high = wilson(int(right[at == b].sum()), count)
            said, was = float(p[at == b].mean()), float(right[at == b].mean())
            bins.append({"said": said, "was": was, "low": low, "high": high, "count": count})
    return bins


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a share."""
    p, denominator = hits / count, 1 + z**2 / count
    middle = (p + z**2 / (2 * count)) / denominator
    half = z * np.sqrt(p * (1 - p) / count + z**2 / (4 * count**2)) / denominator
    return float(middle - half), float(middle + half)


def calibration(found: list[dict[str, Any]]) -> dict[str, Any]:
    """How far probabilities and `clear` are to be believed, in one group."""
    p = np.array([a["probability"] for a in found])
    exact = np.array([a["rank"] == a["planted"] for a in found])
    clear = np.array([a["clear"] for a in found])
    each = [(q, int(k) == a["planted"]) for a in found for k, q in a["probabilities"].items()]
    said, so = (np.array(column) for column in zip(*each, strict=True))
    order = np.argsort(-p, kind="stable")
    count = np.arange(1, len(p) + 1)
    some = np.unique(np.linspace(0, len(p) - 1, min(len(p), 120)).round().astype(int))
    so_far = exact[order].cumsum() / count
    return {
        "chosen": curve(p, exact),
        "every rank": curve(said, so),
        "coverage": [(count[some] / len(p)).round(4).tolist(), so_far[some].round(4).tolist()],
        "clear": float(clear.mean()),
        "clear and exact": float(exact[clear].mean()) if clear.any() else None,
    }


def table(by_group: dict[str, list[dict[str, Any]]]) -> str:
    """Exact and within one, a row for each rule and a column for each group."""
    shares = {group: rates(found) for group, found in by_group.items()}
    names = list(dict.fromkeys(name for found in shares.values() for name in found))
    names = [name for name in names if name != "exact rank"]  # of data that needs no rule
    first = next(iter(shares.values()))
    names.sort(key=lambda name: (name != "network", -first.get(name, (0, -1.0))[1]))
    heads = [f"{group}, {len(found)} ({_GROUPS[group]})" for group, found in by_group.items()]
    lines = [
        "| exact / within one | " + " | ".join(heads) + " |",
        "| --- " * (len(heads) + 1) + "|",
    ]
    for name in names:
        cells = []
        for group in by_group:
            count, exact, near = shares[group].get(name, (0, 0.0, 0.0))
            some = "" if count == len(by_group[group]) else f" (of {count})"
            cells.append(f"{exact:.1%} / {near:.1%}{some}" if count else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    clear = []
    for found in by_group.values():
        sure = [a["rank"] == a["planted"] for a in found if a["clear"]]
        exact = f", {np.mean(sure):.1%} of them exact" if sure else ""
        clear.append(f"{len(sure) / len(found):.0%}{exact}")
    lines.append("| *clear, by the network* | " + " | ".join(clear) + " |")
    return "\n".join(lines)


def validated(by_group: dict[str, list[dict[str, Any]]]) -> str:
    """Return the problems that were cross-validated too: everybody on the same problems."""
    some = [a for found in by_group.values() for a in found if "cross-validation" in a["rules"]]
    if not some:
        return ""
    shares = sorted(rates(some).items(), key=lambda item: -item[1][1])
    rows = [f"| {name} | {exact:.1%} | {near:.1%} |" for name, (_, exact, near) in shares]
    head = f"\n\n## The {len(some)} problems of `small` that were cross-validated\n\n"
    return head + "\n".join(["| rule | exact | within one |", "| --- | --- | --- |", *rows])


def drawn(by_group: dict[str, dict[str, Any]]) -> Any:
    """Said against was, and how exact the surest choices are."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=":")
    right.axhline(_PROMISED, color="0.6", linewidth=0.8, linestyle=":")
    for k, (group, found) in enumerate(by_group.items()):
        for name, style, alpha in (("chosen", "o-", 1.0), ("every rank", "s--", 0.55)):
            bins = found[name]
            said, was = ([b[key] for b in bins] for key in ("said", "was"))
            down, up = ([abs(b["was"] - b[key]) for b in bins] for key in ("low", "high"))
            label = f"{group}: {'the rank chosen' if name == 'chosen' else 'every rank'}"
            left.errorbar(said, was, [down, up], fmt=style, color=f"C{k}", alpha=alpha,
                          markersize=4, linewidth=1.2, elinewidth=0.8, label=label)  # fmt: skip
        share, exact = found["coverage"]
        right.plot(share, exact, color=f"C{k}", label=f"{group}: the surest choices")
        if found["clear and exact"] is not None:
            at = found["clear"], found["clear and exact"]
            right.plot(*at, "*", color=f"C{k}", markersize=13, label=f"{group}: called clear")
    left.set(xlabel="probability that was said", ylabel="share that was so", aspect="equal")
    right.set(
        xlabel="share of the problems", ylabel="share of them that is exact", ylim=(0.5, 1.02)
    )
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small")
    return figure


def main() -> None:
    """Write the table, the picture and their numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("answers", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    by_group = answers(asked.answers)
    drawable = {
        group: calibration(found)
        for group, found in by_group.items()
        if group in ("small", "wide") and all("probabilities" in a for a in found)
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    where = environment(("torch", "numpy", "numba"))
    numbers = {"calibration": drawable, "environment": where}
    numbers["rates"] = {group: rates(found) for group, found in by_group.items()}
    (asked.out / "rank.json").write_text(json.dumps(numbers, indent=1) + "\n")
    text = f"# Planted ranks\n\n{table(by_group)}{validated(by_group)}\n"
    (asked.out / "rank.md").write_text(text)
    if drawable:
        drawn(drawable).savefig(asked.out / "rank.png", dpi=130)
    print(text)


if __name__ == "__main__":
    main()
