"""Symmetric factorization V ≈ H Hᵀ, by HALS on two factors that are pulled together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.hals import hals_nnls


class SymmetricState(NamedTuple):
    """The point, both of whose factors are the mean of the pair, and the pair."""

    factors: Factors
    pair: Factors

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """‖H Hᵀ − V‖² at the point."""
        return problem.sq_error(self.factors)


@dataclass(frozen=True)
class Symmetric:
    """min ½‖W Hᵀ − V‖² + ½μ‖W − H‖², μ being `pull` times the mean of V's row sums.

    For μ large enough its critical points have W = H and are those of the symmetric problem (Zhu
    et al., 2018); what is returned is their mean, so that it is symmetric at every iteration.
    """

    pull: float = 0.2
    n_sweeps: int = 3

    def init(self, problem: Problem, x0: Factors) -> SymmetricState:
        m, n = problem.V.shape[-2:]
        if m != n:
            raise ValueError(f"V has shape {(m, n)}; a symmetric factorization needs m = n")
        return self.adopt(problem, None, x0)

    def step(self, problem: Problem, state: SymmetricState) -> SymmetricState:
        V, (W, H) = problem.V, state.pair
        mu = (self.pull * problem.mean() * V.shape[-1])[..., None, None]
        H = self._half_step(V.normal(W), W, H, mu)
        W = self._half_step(V.T.normal(H), H, W, mu)
        middle = (W + H) / 2
        return SymmetricState(Factors(middle, middle), Factors(W, H))

    def adopt(self, problem: Problem, state: SymmetricState | None, x: Factors) -> SymmetricState:
        return SymmetricState(x, x)

    def _half_step(self, normal: Normal, W: Tensor, H: Tensor, mu: Tensor) -> Tensor:
        ridge = mu * torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
        drawn = Normal(normal.VtW + mu * W, normal.WtW + ridge)
        count = torch.full(H.shape[:-2], self.n_sweeps, device=H.device)
        return hals_nnls(drawn, H, n_sweeps=count)
