"""Multiplicative updates (Lee & Seung, 2001): slow, and known to everyone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.sentence import Sentence
from factormer.solvers.base import Point


def multiply(
    H: Float[Tensor, "*b n r"],
    up: Float[Tensor, "*b n r"],
    down: Float[Tensor, "*b n r"],
    exponent: float = 1.0,
) -> Float[Tensor, "*b n r"]:
    """H ← H · (up / down)^exponent; where that is 0/0 the entry does not matter, and stays."""
    tiny = torch.finfo(H.dtype).tiny
    ratio = up / down.clamp(min=tiny)
    return torch.where(down > tiny, H * (ratio if exponent == 1 else ratio**exponent), H)


def update(problem: Problem, x: Factors, normal: Normal | None = None) -> Float[Tensor, "*b n r"]:
    """The new H, for any loss, L1 and L2 (Févotte & Idier, 2011).

    H ← H · (A / (B + λ₁ + λ₂ H))^γ, where B − A is the gradient of the misfit: (VᵀW, H WᵀW) for the
    squared error, whose `normal` equations may be known.
    """
    on, H = problem.on_h, x.H
    up, down = problem.misfit.parts(x) if normal is None else (normal.VtW, H @ normal.WtW)
    if not on.is_plain:
        l1, l2 = on.elastic or (0.0, 0.0)
        down = down + l1 + l2 * H
    return on.placed(multiply(H, up, down, problem.loss.exponent))


@dataclass(frozen=True)
class Multiplicative:
    """Multiplicative updates for any loss: a descent method, linear at best.

    An entry that is zero stays zero, so a start with zeros (NNDSVD) ends with at least as many.
    The penalties L1 and L2 join the denominator. With a `floor`, smaller entries are lifted to it
    before each step, so entries of an extrapolated point that were clipped can grow again.
    """

    floor: float = 0.0

    def init(self, problem: Problem, x0: Factors) -> Point:
        if not problem.is_elastic:
            raise ValueError(
                Sentence(
                    "{solver=mu} takes only L1 and L2 as penalties; use {solver=ao-admm} for others"
                )
            )
        return Point(x0)

    def step(self, problem: Problem, state: Point) -> Point:
        W, H = (F.clamp(min=self.floor) for F in state.factors)
        if not problem.on_h.is_settled:
            H = update(problem, Factors(W, H))
        known = problem.V.T.normal(H) if problem.is_quadratic else None
        W = update(problem.T, Factors(H, W), known)  # the same code, by eq. 7
        return Point(Factors(W, H), known)

    def adopt(self, problem: Problem, state: Point, x: Factors) -> Point:
        return Point(x)
