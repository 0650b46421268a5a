"""Networks meet solvers: learned initialization (alg. 1) and acceleration (alg. 2).

The networks were trained on matrices of mean 1, so V is divided by its mean on the way in and the
factors are scaled back on the way out: neither depends on the scale of V. One trained as in the
paper, on matrices whose mean is 1 in expectation, sees V as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from factormer.accelerate.base import Descent, Safeguard
from factormer.data.factors import Factors, concatenate, where
from factormer.nn.refining import Network
from factormer.problem.problem import Problem
from factormer.sentence import Sentence
from factormer.starts import NNDSVD, Initializer

_BLOCK_ENTRIES = 2**24  # attention weights held at once where no gradient is wanted


@dataclass(frozen=True)
class LearnedInit:
    """Refine another start by one pass of an N-Factormer (alg. 1)."""

    model: Network
    base: Initializer = field(default_factory=NNDSVD)
    safeguard: Safeguard = field(default_factory=Descent)

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        check_serves(self.model, problem, n_points=1)
        x0 = self.base(problem, rng)
        proposed = _apply(self.model, problem, x0)
        accepted = self.safeguard.accept(problem, stepped=x0, proposed=proposed)
        return where(accepted, proposed, x0)


@dataclass(frozen=True)
class LearnedAccelerator:
    """Propose the N-Factormer of [x, x̂], the points before and after an iteration (alg. 2)."""

    model: Network

    def init(self, problem: Problem, x0: Factors) -> None:
        check_serves(self.model, problem, n_points=2)

    def propose(
        self, problem: Problem, memory: None, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, None]:
        return _apply(self.model, problem, concatenate(before, stepped)), None


def check_serves(model: Network, problem: Problem, *, n_points: int) -> None:
    """Raise with a sentence where the network was made for another rank or another use."""
    config = model.config
    if problem.rank != config.rank:
        raise ValueError(
            Sentence(
                "{rank} is {given}, but this network serves only rank {own}; choose rank {own}, or "
                "{init=nndsvd} and {accelerator=None} for any rank",
                given=problem.rank,
                own=config.rank,
            )
        )
    if config.n_points != n_points:
        kinds = {1: "an initialization", 2: "an acceleration"}
        raise ValueError(
            Sentence(
                "{kind} network takes {count} point(s) and this one {own}; choose an init-… model "
                "as {init} and an accel-… model as {accelerator}",
                kind=kinds[n_points],
                count=n_points,
                own=config.n_points,
            )
        )


def _apply(model: Network, problem: Problem, x: Factors) -> Factors:
    """The network at V / mean, or at V if it was trained so, in the network's own precision."""
    normalized, mean = problem, torch.ones((), dtype=problem.V.dtype, device=problem.V.device)
    if model.config.normalize:
        normalized, mean = problem.normalized()
    own = next(model.parameters()).dtype
    W, H = x.scale(1 / mean)
    block = None
    if not torch.is_grad_enabled():
        *batch, m, n = problem.V.shape
        block = max(1, _BLOCK_ENTRIES // (model.config.heads * math.prod(batch) * max(m, n)))
    W, H = model(Factors(W.to(own), H.to(own)), normalized.V.to(own), block=block)
    return Factors(W.to(problem.V.dtype), H.to(problem.V.dtype)).scale(mean)
