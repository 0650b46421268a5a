"""Extrapolation with restart (Ang & Gillis, 2019): the unlearned accelerator to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.kernels import rules
from factormer.problem.problem import Problem


class Momentum(NamedTuple):
    """The step β beyond the last iterate, the one before it, and the bound β̄ on it."""

    beta: Float[Tensor, "*b"]
    last: Float[Tensor, "*b"]
    bound: Float[Tensor, "*b"]


@dataclass(frozen=True)
class Extrapolation:
    """Propose y = x̂ + β(x̂ − x), the point beyond the last step; β grows while the loss falls.

    After a rise of the loss, β falls by `eta` and the previous β becomes the bound. The proposal
    may have negative entries: solvers start from its nonnegative part, products use it as it is.
    β grows faster than in the paper (1.01 and 1.005), which needs fewer iterations: lab/log.
    """

    beta: float = rules.BETA
    eta: float = rules.ETA
    gamma: float = rules.GAMMA
    gamma_bound: float = rules.GAMMA_BOUND

    @property
    def rates(self) -> tuple[float, float, float]:
        """Return the rates as `kernels.restart` takes them."""
        return float(self.eta), float(self.gamma), float(self.gamma_bound)

    def init(self, problem: Problem, x0: Factors) -> Momentum:
        V = problem.V
        beta = torch.full(V.shape[:-2], self.beta, dtype=V.dtype, device=V.device)
        return Momentum(beta, beta, torch.ones_like(beta))

    def propose(
        self, problem: Problem, memory: Momentum, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, Momentum]:
        weight = (1 + memory.beta)[..., None, None]
        W, H = (torch.lerp(a, b, weight) for a, b in zip(before, stepped, strict=True))
        return Factors(W, H), memory

    def judged(self, memory: Momentum, rose: Bool[Tensor, "*b"]) -> Momentum:
        """The memory after an iteration from the proposal; `rose`: whether the loss increased."""
        beta, last, bound = memory
        return Momentum(
            torch.where(rose, beta / self.eta, torch.minimum(bound, self.gamma * beta)),
            beta,
            torch.where(rose, last, (self.gamma_bound * bound).clamp(max=1)),
        )
