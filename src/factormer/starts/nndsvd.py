"""Nonnegative double singular value decomposition."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import zero_padding
from factormer.data.factors import Factors
from factormer.data.svd import TIED, leans, truncated_svd
from factormer.problem.problem import Problem
from factormer.starts.base import complete


@dataclass(frozen=True)
class NNDSVD:
    """Nonnegative double SVD (Boutsidis & Gallopoulos, 2008): the plain variant, zeros kept.

    `fill` is the share of the mean of V put in place of zeros: 0 is the paper's start, 1 is
    NNDSVDa; `random` multiplies it by the absolute value of a normal variable, which with a
    hundredth is NNDSVDar. Components beyond min(m, n), which have no singular vector, are drawn at
    random at a hundredth of the mean of V.
    """

    fill: float = 0.0
    random: bool = False

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        V = problem.V
        parts = nndsvd(*truncated_svd(V, problem.rank, rng))
        if self.fill:
            fill = self.fill * problem.mean()[..., None, None]
            parts = (torch.where(F > 0, F, fill * self._chance(F, rng)) for F in parts)
        W, H = (complete(F, problem, rng) for F in parts)
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols))

    def _chance(self, F: Tensor, rng: torch.Generator) -> Tensor | float:
        return torch.randn(F.shape, generator=rng).abs().to(F) if self.random else 1.0


def nndsvd(
    U: Float[Tensor, "*b m k"], S: Float[Tensor, "*b k"], Z: Float[Tensor, "*b n k"]
) -> Factors:
    """Keep of each singular pair (u, z) its larger nonnegative part, u₊z₊ᵀ or u₋z₋ᵀ.

    The leading pair is nonnegative up to sign (Perron–Frobenius), and kept whole. Entries that are
    rounding errors relative to the largest of their component are zero, as in scikit-learn.
    """
    sign = torch.where(leans(U, Z), 1, -1)[..., None, :]
    u, z = ((sign * F).clamp(min=0) for F in (U, Z))
    norm_u, norm_z = u.norm(dim=-2), z.norm(dim=-2)  # (*b, k)
    share = (S * norm_u * norm_z).sqrt()
    tiny = torch.finfo(U.dtype).tiny
    W = u * (share / norm_u.clamp(min=tiny))[..., None, :]
    H = z * (share / norm_z.clamp(min=tiny))[..., None, :]
    W[..., 0], H[..., 0] = (S[..., :1].sqrt() * F[..., 0].abs() for F in (U, Z))
    return Factors(*(torch.where(TIED * F.amax(dim=-2, keepdim=True) < F, F, 0) for F in (W, H)))
