"""The training loss: the discounted sum of eq. 17 along the trajectory."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import n_entries
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer_lab.train.config import Objective


def discounted(losses: Float[Tensor, " T"], gamma: float) -> Float[Tensor, ""]:
    """Σₖ γᵏ ℓ(x^{T−k}) for k = 0…T−1 (eq. 17, which prints one term too many: x⁰ is given)."""
    k = torch.arange(len(losses) - 1, -1, -1, device=losses.device)
    return (gamma**k * losses).sum()  # (17)


def unrolled_loss(
    problem: Problem, points: Iterable[Factors], *, gamma: float, objective: Objective
) -> Float[Tensor, ""]:
    """Eq. 17 over x¹…x^T, averaged over the batch.

    "squared" is the paper's ℓ; large and hard matrices dominate it. "log" is log RMSE, divided
    by Σγᵏ, in which every matrix has the same weight.
    """
    points = list(points)
    if objective == "squared":
        return discounted(torch.stack([problem.objective(x).mean() for x in points]), gamma)
    floor = torch.finfo(problem.V.dtype).tiny
    mean_squares = [problem.V.sq_error(x) / n_entries(problem.V) for x in points]
    logs = torch.stack([s.clamp(min=floor).log().mean() / 2 for s in mean_squares])
    return discounted(logs, gamma) / discounted(torch.ones_like(logs), gamma)
