"""The worth of each part of the any-rank accelerator: a table and a figure of error by iteration.

    make bench NAME=ablation ARGS="[--out FOLDER] [--per-kind 3]"

The network against none on the same half-steps; against our Factormer of rank 10 (`accel-r10`,
refining layers) and the paper's AO-ADMM, on the paper's two validation sets; and on kinds of data
and ranks that a Factormer does not serve. All begin at the same point. For seconds see
`make bench NAME=peers`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Accelerated, Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.learned import LearnedAccelerator
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.zoo import load_any_rank, load_factormer
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.loop import loop
from factormer_lab.bench.environment import environment
from factormer_lab.train.anyrank.problems import KINDS, draw_bucket
from factormer_lab.train.synthetic import validation_set

ITERATIONS = (5, 10, 20, 50, 100)
SHAPES = ((60, 40, 5), (120, 90, 20))
_SEED = 55_555  # far from the seeds of training
_CHUNK = 32
_ADMM = TraceAOADMM(n_inner=10, tol=0.0, share=0.1)
_STYLES = {
    "AO-ADMM, ρ = 1": ("#999999", "-"),
    "the same with accel-r10 (ours)": ("#999999", "--"),
    "ADMM, extrapolated": ("#7b6fd0", "-"),
    "ADMM with the network": ("#7b6fd0", "--"),
    "HALS": ("#c9b458", "-"),
    "HALS, extrapolated": ("#1b7f5c", "-"),
    "HALS with the network": ("#d1495b", "-"),
}


def engines(rank: int) -> dict[str, Solver[Any]]:
    """Who is compared; the Factormer at its own rank alone."""
    network = AnyRank(load_any_rank("any-rank").double())
    found: dict[str, Solver[Any]] = {"AO-ADMM, ρ = 1": AOADMM()}
    if rank == 10:
        factormer = LearnedAccelerator(load_factormer("accel-r10").double())
        found["the same with accel-r10 (ours)"] = Accelerated(AOADMM(), factormer)
    return found | {
        "ADMM, extrapolated": Restarted(_ADMM, Extrapolation()),
        "ADMM with the network": Restarted(_ADMM, network),
        "HALS": HALS(),
        "HALS, extrapolated": Restarted(HALS(), Extrapolation()),
        "HALS with the network": Restarted(HALS(), network),
    }


@torch.no_grad()
def errors(engine: Solver[Any], problem: Problem, x0: Factors) -> torch.Tensor:
    """The least RMSE of each matrix after every iteration."""
    looks = loop(problem, engine, x0, limit=ITERATIONS[-1])
    return torch.stack([problem.rmse(look.factors) for look in looks]).cummin(dim=0).values


def paper_set(name: str) -> dict[str, Any]:
    """Medians of the error on a validation set of the paper, from NNDSVD."""
    stack = validation_set(name)
    pieces = [stack.select(i, crop=True) for i in torch.arange(len(stack)).split(_CHUNK)]
    found = {}
    for label, engine in engines(10).items():
        runs = [errors(engine, piece.problem, piece.x0) for piece in pieces]
        found[label] = torch.cat(runs, dim=1).median(dim=1).values.tolist()
        sys.stderr.write(f"{name}: {label}\n")
    return found


def other_set(shape: tuple[int, int, int], per_kind: int) -> dict[str, Any]:
    """Medians of the excess over the best error that any found, on every kind of data."""
    bucket = draw_bucket(shape, per_kind, torch.Generator().manual_seed(_SEED))
    problem = Problem(Dense(bucket.V.double()), bucket.rank)
    x0 = Factors(*(F.double() for F in bucket.x0))
    runs = {name: errors(engine, problem, x0) for name, engine in engines(bucket.rank).items()}
    best = torch.stack([run[-1] for run in runs.values()]).amin(dim=0).clamp(min=1e-4)
    return {name: (run / best - 1).median(dim=1).values.tolist() for name, run in runs.items()}


def table(title: str, rows: dict[str, Any], unit: str) -> str:
    """A set as Markdown."""
    head = f"| {title} | " + " | ".join(f"iteration {t}" for t in ITERATIONS) + " |"
    lines = [head, "| --- |" + " --: |" * len(ITERATIONS)]
    for name, values in rows.items():
        shown = [
            f"{100 * values[t]:.2f} %" if unit == "%" else f"{values[t]:.5f}" for t in ITERATIONS
        ]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """A panel a set: the medians against the iteration."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(results), 3.8), layout="constrained")
    panels = figure.subplots(1, len(results))
    for ax, (title, rows) in zip(panels, results.items(), strict=True):
        for name, values in rows.items():
            colour, dashes = _STYLES[name]
            shown = [max(v, 1e-5) for v in values[1:]]
            ax.plot(range(1, len(values)), shown, dashes, color=colour, label=name, linewidth=1.6)
        ax.set(title=title, yscale="log", xscale="log", xlabel="iteration")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("RMSE, or excess over the best: median")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=130)


def main() -> int:
    """Measure, print the tables, write numbers and figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--per-kind", type=int, default=3, help="matrices of each kind and shape")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for name in ("small", "large"):
        results[f"paper's {name} set, r = 10"] = paper_set(name)
    for shape in SHAPES:
        m, n, r = shape
        results[f"{len(KINDS)} kinds, {m}×{n}, r = {r}"] = other_set(shape, options.per_kind)
    for title, rows in results.items():
        print(table(title, rows, "%" if "kinds" in title else ""), end="\n\n")
    contents = {"environment": environment(), "iterations": results}
    (options.out / "ablation.json").write_text(json.dumps(contents, indent=1) + "\n")
    draw(results, options.out / "ablation.png")
    print(f"numbers and figure: {options.out / 'ablation.json'}, {options.out / 'ablation.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
