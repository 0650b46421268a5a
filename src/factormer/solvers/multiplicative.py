"""Multiplicative updates (Lee & Seung, 2001): slow, and known to everyone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.factors import Factors
from factormer.matrix import Normal
from factormer.problem import Problem
from factormer.solvers.base import Point


def multiply(normal: Normal, H: Float[Tensor, "*b n r"]) -> Float[Tensor, "*b n r"]:
    """H ← H · VᵀW / (H WᵀW); where that is 0/0 the entry does not matter, and is left alone."""
    VtW, WtW = normal
    denominator = H @ WtW
    tiny = torch.finfo(H.dtype).tiny
    return torch.where(denominator > tiny, H * (VtW / denominator.clamp(min=tiny)), H)


@dataclass(frozen=True)
class Multiplicative:
    """Multiplicative updates for the squared error: a descent method, linear at best.

    An entry that is zero stays zero, so a start with zeros (NNDSVD) ends with at least as many.
    """

    def init(self, problem: Problem, x0: Factors) -> Point:
        return Point(x0)

    def step(self, problem: Problem, state: Point) -> Point:
        V, (W, H) = problem.V, (F.clamp(min=0) for F in state.factors)
        H = multiply(V.normal(W), H)
        known = V.T.normal(H)
        return Point(Factors(multiply(known, W), H), known)  # the same code, by eq. 7

    def adopt(self, problem: Problem, state: Point, x: Factors) -> Point:
        return Point(x)
