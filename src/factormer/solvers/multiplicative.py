"""Multiplicative updates (Lee & Seung, 2001): slow, and known to everyone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.objective import Objective
from factormer.problem.problem import Problem
from factormer.solvers.base import Point


def multiply(normal: Normal, H: Float[Tensor, "*b n r"]) -> Float[Tensor, "*b n r"]:
    """H ← H · VᵀW / (H WᵀW); where that is 0/0 the entry does not matter, and is left alone."""
    VtW, WtW = normal
    return _ratio(H, VtW, H @ WtW)


def _ratio(
    H: Float[Tensor, "*b n r"],
    up: Float[Tensor, "*b n r"],
    down: Float[Tensor, "*b n r"],
    exponent: float = 1.0,
) -> Float[Tensor, "*b n r"]:
    tiny = torch.finfo(H.dtype).tiny
    ratio = up / down.clamp(min=tiny)
    return torch.where(down > tiny, H * (ratio if exponent == 1 else ratio**exponent), H)


def multiply_beta(problem: Objective, x: Factors) -> Float[Tensor, "*b n r"]:
    """H ← H · ((ω v y^(β−2))ᵀ W / ((ω y^(β−1))ᵀ W + λ₁ + λ₂ H))^γ (Févotte & Idier, 2011)."""
    l1, l2 = problem.on_h.elastic or (0.0, 0.0)
    up, down = problem.parts(x)
    H = _ratio(x.H, up, down + l1 + l2 * x.H, problem.divergence.exponent)
    return problem.on_h.placed(H)


@dataclass(frozen=True)
class Multiplicative:
    """Multiplicative updates for any β-divergence: a descent method, linear at best.

    An entry that is zero stays zero, so a start with zeros (NNDSVD) ends with at least as many.
    For an `Objective` the penalties L1 and L2 join the denominator. With a `floor`, smaller entries
    are lifted to it before each step: an extrapolated point is clipped there, and not for good.
    """

    floor: float = 0.0

    def init(self, problem: Problem, x0: Factors) -> Point:
        if isinstance(problem, Objective):
            check_elastic(problem)
        return Point(x0)

    def step(self, problem: Problem, state: Point) -> Point:
        V, (W, H) = problem.V, (F.clamp(min=self.floor) for F in state.factors)
        if isinstance(problem, Objective):
            H = H if problem.on_h.is_settled else multiply_beta(problem, Factors(W, H))
            return Point(Factors(multiply_beta(problem.T, Factors(H, W)), H))
        H = multiply(V.normal(W), H)
        known = V.T.normal(H)
        return Point(Factors(multiply(known, W), H), known)  # the same code, by eq. 7

    def adopt(self, problem: Problem, state: Point, x: Factors) -> Point:
        return Point(x)


def check_elastic(problem: Objective) -> None:
    """Multiplicative updates know of no penalty but L1 and L2."""
    if problem.on_w.elastic is None or problem.on_h.elastic is None:
        raise ValueError(
            "solver='mu' takes L1 and L2 alone as penalties; use solver='ao-admm' for others"
        )
