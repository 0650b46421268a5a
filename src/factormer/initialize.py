"""Starting points: random, and NNDSVD from a truncated singular value decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.factors import Factors
from factormer.matrix import Matrix, zero_padding
from factormer.problem import Problem


@runtime_checkable
class Initializer(Protocol):
    """Chooses where to start; `rng` is the only source of chance."""

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors: ...


@dataclass(frozen=True)
class Random:
    """Uniform factors, scaled so that W Hᵀ is the best multiple of itself."""

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        V, r = problem.V, problem.rank
        *batch, m, n = V.shape
        x = Factors(_uniform((*batch, m, r), V, rng), _uniform((*batch, n, r), V, rng))
        x = Factors(zero_padding(x.W, V.rows), zero_padding(x.H, V.cols))
        VtW, WtW = V.normal(x.W)
        overlap = (VtW * x.H).sum(dim=(-2, -1))  # ⟨V, W Hᵀ⟩
        return x.scale(overlap / (WtW * (x.H.mT @ x.H)).sum(dim=(-2, -1)))


@dataclass(frozen=True)
class Given:
    """A start that is known already."""

    x0: Factors

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        return self.x0


@dataclass(frozen=True)
class NNDSVD:
    """Nonnegative double SVD (Boutsidis & Gallopoulos, 2008): the plain variant, zeros kept.

    `fill` is the share of the mean of V put in place of zeros: 0 is the paper's start, 1 is
    NNDSVDa. Components beyond min(m, n), which have no singular vector, are drawn at random at a
    hundredth of the mean of V.
    """

    fill: float = 0.0

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        V = problem.V
        W, H = (self._complete(F, problem, rng) for F in nndsvd(*truncated_svd(V, problem.rank)))
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols))

    def _complete(self, F: Tensor, problem: Problem, rng: torch.Generator) -> Tensor:
        mean = problem.mean()[..., None, None]
        missing = problem.rank - F.shape[-1]
        F = torch.where(F > 0, F, self.fill * mean) if self.fill else F
        if not missing:
            return F
        extra = _uniform((*F.shape[:-1], missing), problem.V, rng) * (mean / 100).sqrt()
        return torch.cat([F, extra], dim=-1)


def _uniform(shape: tuple[int, ...], V: Matrix, rng: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=rng, dtype=V.dtype, device=rng.device).to(V.device)


def truncated_svd(
    V: Matrix, rank: int
) -> tuple[Float[Tensor, "*b m k"], Float[Tensor, "*b k"], Float[Tensor, "*b n k"]]:
    """Leading k = min(rank, m, n) singular triplets (U, S, Z) with V ≈ U diag(S) Zᵀ.

    From the eigenvectors of the smaller Gram matrix, in float64: squaring costs digits only of
    singular values that are tiny beside the first, and those hardly matter to a start.
    """
    if V.shape[-2] < V.shape[-1]:
        Z, S, U = truncated_svd(V.T, rank)
        return U, S, Z
    k = min(rank, V.shape[-1])
    (_, entries), *_ = V.blocks(None)
    entries = entries.double()
    eigenvalues, Z = torch.linalg.eigh(entries.mT @ entries)  # ascending
    S = eigenvalues[..., -k:].flip(-1).clamp(min=0).sqrt()
    Z = Z[..., -k:].flip(-1)
    U = torch.nan_to_num(entries @ Z / S[..., None, :], nan=0.0, posinf=0.0, neginf=0.0)
    return U.to(V.dtype), S.to(V.dtype), Z.to(V.dtype)


def nndsvd(
    U: Float[Tensor, "*b m k"], S: Float[Tensor, "*b k"], Z: Float[Tensor, "*b n k"]
) -> Factors:
    """Keep of each singular pair (u, z) its larger nonnegative part, u₊z₊ᵀ or u₋z₋ᵀ.

    The leading pair is nonnegative up to sign (Perron–Frobenius), and kept whole.
    """
    plus, minus = (U.clamp(min=0), Z.clamp(min=0)), (U.neg().clamp(min=0), Z.neg().clamp(min=0))
    (a_u, a_z), (b_u, b_z) = ([F.norm(dim=-2) for F in pair] for pair in (plus, minus))
    keep_plus = a_u * a_z >= b_u * b_z  # (*b, k)
    u, z = (torch.where(keep_plus[..., None, :], p, q) for p, q in zip(plus, minus, strict=True))
    norm_u = torch.where(keep_plus, a_u, b_u)
    norm_z = torch.where(keep_plus, a_z, b_z)
    share = (S * norm_u * norm_z).sqrt()
    tiny = torch.finfo(U.dtype).tiny
    W = u * (share / norm_u.clamp(min=tiny))[..., None, :]
    H = z * (share / norm_z.clamp(min=tiny))[..., None, :]
    W[..., 0], H[..., 0] = (S[..., :1].sqrt() * F[..., 0].abs() for F in (U, Z))
    return Factors(W, H)
