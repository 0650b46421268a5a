"""A better local optimum, or the same one sooner: figures 8 and 9 carried to convergence.

The paper stops after some tens of iterations. Here every start goes on until the error hardly
changes, with both penalties, and random starts are the control: another start ends in another
optimum by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.loop import loop
from factormer.starts import NNDSVD, Random
from factormer_lab.paper.reproduce import style
from factormer_lab.paper.reproduce.contestants import (
    ACCEL_ALWAYS,
    BASELINE,
    INIT_ALWAYS,
    PAPER,
    PAPER_ACCEL,
    RANK,
    TRACE,
    Contestant,
)

PENALTIES = {"ρ = 1": BASELINE.solver, "ρ = tr/r": TRACE.solver}
LEARNED = (PAPER, PAPER_ACCEL, INIT_ALWAYS, ACCEL_ALWAYS)
N_RANDOM = 5
N_LONG = 600
LOOKS = (20, 50, 100, 300, 600)


def optimum(
    matrices: dict[str, Tensor],
    *,
    n_iter: int = N_LONG,
    only: Collection[str] = (),
    stored: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Any]:
    """The numbers and the figure: errors of each start at a few iterations up to the last.

    With `only`, the starts by these networks, and the others from stored numbers.
    """
    learned = [c for c in LEARNED if not only or {c.init, c.accelerator} & set(only)]
    looks = [t for t in LOOKS if t < n_iter] + [n_iter]
    controls = not (only and stored)
    numbers: dict[str, Any] = {"iterations": looks, "sets": {}}
    for name, V in matrices.items():
        problem = Problem(Dense(V), RANK)
        numbers["sets"][name] = {
            penalty: {
                key: {"label": label, "rmse": _errors(problem, engine, x0, looks)}
                for key, label, engine, x0 in _starts(problem, solver, learned, controls)
            }
            for penalty, solver in PENALTIES.items()
        }
    if stored:
        _take_over(numbers["sets"], stored["sets"])
    return numbers, draw_optimum(numbers)


def _take_over(sets: dict[str, Any], stored: Mapping[str, Any]) -> None:
    """Add the stored starts that were not made again."""
    names = {"nndsvd": "NNDSVD", **{c.key: c.label for c in LEARNED}}
    names |= {f"random-{seed}": f"random, seed {seed}" for seed in range(N_RANDOM)}
    for name, penalties in sets.items():
        for penalty, starts in penalties.items():
            both = {**stored[name][penalty], **starts}
            penalties[penalty] = {
                key: {**both[key], "label": label} for key, label in names.items() if key in both
            }


def _starts(
    problem: Problem, solver: Any, learned: Sequence[Contestant], controls: bool
) -> Iterator[tuple[str, str, Any, Factors]]:
    """Key, label, engine and point of each start, with `controls` also of NNDSVD and random."""
    x0 = NNDSVD()(problem, torch.Generator())
    if controls:
        yield "nndsvd", "NNDSVD", solver, x0
    for one in learned:
        own = replace(one, solver=solver)
        start = own.start(problem, x0, own.safeguard)
        yield one.key, one.label, own.engine(own.safeguard), start
    for seed in range(N_RANDOM if controls else 0):
        rng = torch.Generator().manual_seed(seed)
        yield f"random-{seed}", f"random, seed {seed}", solver, Random()(problem, rng)


@torch.no_grad()
def _errors(problem: Problem, engine: Any, x0: Factors, looks: list[int]) -> list[float]:
    """RMSE at some iterations, and a hundred before the last."""
    wanted = _times(looks)
    found = {
        look.t: problem.rmse(look.factors).item()
        for look in loop(problem, engine, x0, limit=looks[-1])
        if look.t in wanted
    }
    return [found[t] for t in sorted(found)]


def draw_optimum(numbers: dict[str, Any]) -> Any:
    """One panel for each matrix and penalty: the error relative to NNDSVD's end."""
    sets, looks = numbers["sets"], numbers["iterations"]
    with style.figure(11.0, 3.4 * len(sets)) as drawing:
        axes = drawing.subplots(len(sets), len(PENALTIES), squeeze=False)
        for row, (name, penalties) in zip(axes, sets.items(), strict=True):
            for ax, (penalty, starts) in zip(row, penalties.items(), strict=True):
                end = starts["nndsvd"]["rmse"][-1]
                for key, start in starts.items():
                    if key == INIT_ALWAYS.key:  # five labels are enough; the table has it
                        continue
                    _curve(ax, key, start, [100 * (e / end - 1) for e in at_looks(start, looks)])
                ax.axhline(0, color="black", linewidth=0.9)
                ax.set(title=f"{name}, {penalty}", xlabel="iteration")
                ax.set_xticks(range(len(looks)), looks)
                ax.set_yscale("symlog", linthresh=1)
            row[0].set_ylabel("% above NNDSVD's last error")
        handles, labels = axes[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=3)
    return drawing


def _curve(ax: Any, key: str, start: dict[str, Any], values: list[float]) -> None:
    if key.startswith("random"):
        label = "random starts" if key.endswith("-0") else None
        ax.plot(values, color="#bbbbbb", linewidth=1.2, zorder=1, label=label)
    else:
        colour = style.COLOURS.get(key, "#000000")
        ax.plot(values, color=colour, marker="o", markersize=4, label=start["label"])


def at_looks(start: dict[str, Any], looks: list[int]) -> list[float]:
    """The errors at the looks; the one before the last is for `settled`."""
    errors, times = start["rmse"], _times(looks)
    return [errors[times.index(t)] for t in looks]


def settled(start: dict[str, Any], looks: list[int]) -> float:
    """By how much the error still fell in the last hundred iterations, relative."""
    errors, before = start["rmse"], _times(looks).index(max(0, looks[-1] - 100))
    return errors[before] / errors[-1] - 1


def _times(looks: list[int]) -> list[int]:
    return sorted({*looks, max(0, looks[-1] - 100)})
