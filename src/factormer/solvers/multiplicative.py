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
from factormer.terms import NOTHING, Terms


def multiply(
    normal: Normal, H: Float[Tensor, "*b n r"], terms: Terms = NOTHING.H
) -> Float[Tensor, "*b n r"]:
    """H ← H · VᵀW / (H WᵀW + l1 + l2·H); where that is 0/0 the entry is left alone."""
    VtW, WtW = normal
    denominator = H @ WtW
    if terms.is_penalty:
        denominator = denominator + (terms.l1 + terms.l2 * H)
    tiny = torch.finfo(H.dtype).tiny
    moved = torch.where(denominator > tiny, H * (VtW / denominator.clamp(min=tiny)), H)
    return terms.held(moved, H)


@dataclass(frozen=True)
class Multiplicative:
    """Multiplicative updates for the squared error: a descent method, linear at best.

    An entry that is zero stays zero, so a start with zeros (NNDSVD) ends with at least as many.
    """

    def init(self, problem: Problem, x0: Factors) -> Point:
        return Point(x0)

    def step(self, problem: Problem, state: Point) -> Point:
        V, asked, (W, H) = problem.V, problem.asked, (F.clamp(min=0) for F in state.factors)
        H = multiply(V.normal(W), H, asked.H)
        known = V.T.normal(H)
        x = Factors(multiply(known, W, asked.W), H)  # the same code, by eq. 7
        return Point(x, None if asked.W.is_penalty else known)

    def adopt(self, problem: Problem, state: Point, x: Factors) -> Point:
        return Point(x)
