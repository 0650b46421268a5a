"""A random start."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from factormer.data import zero_padding
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.starts.base import uniform


@dataclass(frozen=True)
class Random:
    """Uniform factors, scaled so that W Hᵀ has the mean of V: no product with V is needed."""

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        V, r = problem.V, problem.rank
        *batch, m, n = V.shape
        scale = (4 / r * problem.mean()).sqrt()[..., None, None]  # a random entry is 1/2 on average
        W, H = (uniform((*batch, size, r), V, rng).mul_(scale) for size in (m, n))
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols))
