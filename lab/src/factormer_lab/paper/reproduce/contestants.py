"""Who is compared: AO-ADMM with two penalties, and networks around it, all from NNDSVD.

Networks with the paper's layers take every proposal, as in the paper; "ours" are refining networks,
whose proposals a safeguard judges unless a label says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from factormer.accelerate.base import Accelerated, AfterIteration, Always, Descent, Safeguard
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.data.factors import Factors
from factormer.nn.refining import Network
from factormer.nn.zoo import load_factormer
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM
from factormer.solvers.base import Solver
from factormer.starts import Given

RANK = 10
N_ITER = 100
N_ACCEL = 5  # the paper's number of accelerated iterations


@dataclass
class Witness:
    """A safeguard that records what share of the proposals another one accepted."""

    safeguard: Safeguard
    shares: list[float] = field(default_factory=list)

    def accept(
        self, problem: Problem, *, stepped: Factors, proposed: Factors
    ) -> Bool[Tensor, "*b"]:
        accepted = self.safeguard.accept(problem, stepped=stepped, proposed=proposed)
        self.shares.append(accepted.double().mean().item())
        return accepted

    @property
    def kept(self) -> float | None:
        """The share of all proposals so far; None where there was none."""
        return sum(self.shares) / len(self.shares) if self.shares else None


@dataclass(frozen=True)
class Contestant:
    """A solver, and the names of the networks that start it or propose between its iterations."""

    key: str
    label: str
    solver: Solver[Any] = field(default_factory=AOADMM)
    init: str | None = None
    accelerator: str | None = None
    safeguard: Safeguard = field(default_factory=Descent)

    def start(self, problem: Problem, x0: Factors, safeguard: Safeguard) -> Factors:
        """The point of iteration 0, from the NNDSVD start."""
        if self.init is None:
            return x0
        learned = LearnedInit(network(self.init), base=Given(x0), safeguard=safeguard)
        return learned(problem, torch.Generator())

    def engine(self, safeguard: Safeguard) -> Solver[Any]:
        """The solver with its accelerator, if it has one."""
        if self.accelerator is None:
            return self.solver
        accelerator = LearnedAccelerator(network(self.accelerator))
        return Accelerated(self.solver, accelerator, safeguard=safeguard, n_accel=N_ACCEL)

    @property
    def n_accel(self) -> int:
        """Iterations that a network takes part in."""
        return N_ACCEL if self.accelerator else 0


def _always(ours: Contestant) -> Contestant:
    label = f"{ours.label}, every proposal taken"
    return replace(ours, key=f"{ours.key}-always", label=label, safeguard=Always())


def _later(ours: Contestant) -> Contestant:
    label = f"{ours.label}, judged after an iteration"
    judge = AfterIteration(ours.solver)
    return replace(ours, key=f"{ours.key}-later", label=label, safeguard=judge)


def _around_trace(one: Contestant) -> Contestant:
    label = f"{one.label}, every proposal taken, then ρ = tr/r"
    fair = TraceAOADMM()
    return replace(one, key=f"{one.key}-trace", label=label, solver=fair, safeguard=Always())


@cache
def network(name: str) -> Network:
    """A shipped network in float64."""
    return load_factormer(name).to(torch.float64)


BASELINE = Contestant("ao-admm", "AO-ADMM, ρ = 1 (the paper's)")
TRACE = Contestant("ao-admm-trace", "AO-ADMM, ρ = tr/r", TraceAOADMM())
PAPER = Contestant(  # the paper takes every proposal
    "init-r10-paper",
    "initialization, the paper's layers",
    init="init-r10-paper",
    safeguard=Always(),
)
PAPER_ACCEL = Contestant(
    "accel-r10-paper",
    "acceleration, the paper's layers",
    accelerator="accel-r10-paper",
    safeguard=Always(),
)
INIT = Contestant("init-r10", "our initialization", init="init-r10")
ACCEL = Contestant("accel-r10", "our acceleration", accelerator="accel-r10")
INIT_ALWAYS = _always(INIT)
ACCEL_ALWAYS = _always(ACCEL)
INIT_LATER = _later(INIT)
ACCEL_LATER = _later(ACCEL)
PAPER_TRACE = _around_trace(PAPER)
PAPER_ACCEL_TRACE = _around_trace(PAPER_ACCEL)
INIT_TRACE = _around_trace(INIT)

IN_FIGURES = (BASELINE, TRACE, PAPER, PAPER_ACCEL, INIT, ACCEL)
DRAWN = (BASELINE, PAPER, PAPER_ACCEL, INIT, ACCEL)  # at most five curves in a figure
DRAWN_REAL = (BASELINE, TRACE, PAPER, PAPER_ACCEL, ACCEL_ALWAYS)
WITHOUT_SAFEGUARD = (INIT_ALWAYS, ACCEL_ALWAYS)
JUDGED_LATER = (INIT_LATER, ACCEL_LATER)  # on real data
AROUND_TRACE = (PAPER_TRACE, PAPER_ACCEL_TRACE, INIT_TRACE)  # beyond the paper, on real data
ALL = (*IN_FIGURES, *WITHOUT_SAFEGUARD, *JUDGED_LATER, *AROUND_TRACE)
LABELS = {c.key: c.label for c in ALL}


def asked(contestants: Sequence[Contestant], only: Collection[str]) -> list[Contestant]:
    """The contestants with one of these networks, and AO-ADMM; without any, all."""
    return [
        c for c in contestants if not only or c is BASELINE or {c.init, c.accelerator} & set(only)
    ]


def merged(rows: dict[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """New rows with the stored ones of the other contestants, in the order and words of today."""
    both = {**stored, **rows}
    return {c.key: {**both[c.key], "label": c.label} for c in ALL if c.key in both}
