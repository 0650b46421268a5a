"""The protocol of starts, and what several of them share."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Matrix, draws
from factormer.data.factors import Factors
from factormer.problem.problem import Problem


@runtime_checkable
class Initializer(Protocol):
    """Chooses where to start; `rng` is the only source of random numbers."""

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors: ...


def complete(
    F: Float[Tensor, "*b m k"], problem: Problem, rng: torch.Generator
) -> Float[Tensor, "*b m r"]:
    """Add random components, at a hundredth of the mean of V, up to the rank."""
    missing = problem.rank - F.shape[-1]
    if not missing:
        return F
    scale = (problem.mean()[..., None, None] / 100).sqrt()
    return torch.cat([F, scale * uniform((*F.shape[:-1], missing), problem.V, rng)], dim=-1)


def uniform(shape: tuple[int, ...], V: Matrix, rng: torch.Generator) -> Tensor:
    """Uniform random numbers from 0 to 1, in the precision and on the device of V.

    They depend on the seed of the generator alone, which moves on to another.
    """
    return draws.uniform(draws.advance(rng), shape).to(V.device, V.dtype)
