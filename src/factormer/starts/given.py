"""A start that is given."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from factormer.data.factors import Factors, where
from factormer.problem.problem import Problem

_PROPORTION = 1e6  # how much larger than V, or smaller, a given start may be


@dataclass(frozen=True)
class Given:
    """A given start; one that is far too large or too small for V is rescaled.

    Nothing waits for a number from a GPU: training records it.
    """

    x0: Factors

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        W, H = self.x0
        tops = [F.abs().amax(dim=(-2, -1)).double() for F in (W, H)]
        units = [F.double() / top[..., None, None] for F, top in zip((W, H), tops, strict=True)]
        level = (units[0].abs().mean(dim=-2) * units[1].abs().mean(dim=-2)).sum(dim=-1)
        apart = tops[0].log() + tops[1].log() + (level / problem.mean().double()).log()
        fits = ~(apart.abs() >= math.log(_PROPORTION)) | (level == 0)  # W Hᵀ = 0 has no scale
        x = Factors(*units).scale(problem.mean().double() / level)
        return where(fits, self.x0, Factors(x.W.to(W), x.H.to(H)))
