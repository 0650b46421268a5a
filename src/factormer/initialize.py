"""Starting points: random, and NNDSVD from a truncated singular value decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.factors import Factors
from factormer.matrix import LowRank, Matrix, sketch, zero_padding
from factormer.problem import Problem

OVERSAMPLING = 10  # columns of a sketch beyond the rank
_EXACT = 200  # sides up to which all singular vectors are cheap


@runtime_checkable
class Initializer(Protocol):
    """Chooses where to start; `rng` is the only source of chance."""

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors: ...


@dataclass(frozen=True)
class Random:
    """Uniform factors, scaled so that W Hᵀ has the mean of V: no product with V is needed."""

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        V, r = problem.V, problem.rank
        *batch, m, n = V.shape
        scale = (4 / r * problem.mean()).sqrt()[..., None, None]  # an entry of chance is 1/2
        W, H = (_uniform((*batch, size, r), V, rng).mul_(scale) for size in (m, n))
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols))


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
        parts = nndsvd(*truncated_svd(V, problem.rank, rng))
        if self.fill:
            fill = self.fill * problem.mean()[..., None, None]
            parts = (torch.where(F > 0, F, fill) for F in parts)
        W, H = (complete(F, problem, rng) for F in parts)
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols))


def complete(
    F: Float[Tensor, "*b m k"], problem: Problem, rng: torch.Generator
) -> Float[Tensor, "*b m r"]:
    """Add components of chance, at a hundredth of the mean of V, up to the rank."""
    missing = problem.rank - F.shape[-1]
    if not missing:
        return F
    scale = (problem.mean()[..., None, None] / 100).sqrt()
    return torch.cat([F, scale * _uniform((*F.shape[:-1], missing), problem.V, rng)], dim=-1)


@dataclass(frozen=True)
class Rotated:
    """The truncated SVD, rotated toward the nonnegative orthant.

    With V ≈ U S Zᵀ, every orthogonal R gives V ≈ (U√S R)(Z√S R)ᵀ. Take the one that comes nearest
    to nonnegative factors, and their nonnegative parts. At most `n_rows` rows of X = [U√S; Z√S] are
    looked at, since R has but r² entries; nothing costs mn once the SVD is there.
    """

    n_steps: int = 30
    n_rows: int = 4096

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        V = problem.V
        U, S, Z = truncated_svd(V, problem.rank, rng)
        root = S.sqrt()[..., None, :]
        X = torch.cat([U * root, Z * root], dim=-2)
        R = rotation(_some_rows(X, self.n_rows, rng), rng, n_steps=self.n_steps)
        W, H = (X @ R).clamp(min=0).split([U.shape[-2], Z.shape[-2]], dim=-2)
        W, H = (complete(F, problem, rng) for F in (W, H))
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols))


def rotation(
    X: Float[Tensor, "*b k r"], rng: torch.Generator, *, n_steps: int, relax: float = 3.0
) -> Float[Tensor, "*b r r"]:
    """An orthogonal R that makes X R nearly nonnegative: min ‖X R − P‖ over R and P ≥ 0.

    By alternating projections, from a rotation of chance: of X R onto the orthant, and of that onto
    the rotations of X (Procrustes). The first overshoots by the factor `relax`, which takes several
    times fewer steps than 1.
    """
    r = X.shape[-1]
    R = torch.linalg.qr(torch.randn(r, r, generator=rng, dtype=X.dtype)).Q.to(X.device)
    for _ in range(n_steps):
        Y = X @ R
        A, _, Bt = torch.linalg.svd(X.mT @ torch.sub(Y, Y.clamp(max=0), alpha=relax))
        R = A @ Bt
    return R


def _some_rows(X: Tensor, count: int, rng: torch.Generator) -> Tensor:
    if X.shape[-2] <= count:
        return X
    return X[..., torch.randperm(X.shape[-2], generator=rng)[:count].to(X.device), :]


def _uniform(shape: tuple[int, ...], V: Matrix, rng: torch.Generator) -> Tensor:
    drawn = torch.rand(shape, generator=rng, device=rng.device)  # in float32: that is faster
    return drawn.to(V.device, V.dtype)


def truncated_svd(
    V: Matrix, rank: int, rng: torch.Generator
) -> tuple[Float[Tensor, "*b m k"], Float[Tensor, "*b k"], Float[Tensor, "*b n k"]]:
    """Leading k = min(rank, m, n) singular triplets (U, S, Z) with V ≈ U diag(S) Zᵀ.

    Exact for small matrices and stacks, and of what is left of V after a sketch for large ones.
    """
    k = min(rank, *V.shape[-2:])
    if isinstance(V, LowRank):
        return lowrank_svd(V, k)
    if len(V.shape) == 2 and min(V.shape) > _EXACT:
        return lowrank_svd(sketch(V, k + OVERSAMPLING, rng), k)
    return gram_svd(V, k)


def lowrank_svd(
    V: LowRank, k: int
) -> tuple[Float[Tensor, "m k"], Float[Tensor, "k"], Float[Tensor, "n k"]]:
    """The leading k singular triplets of U Zᵀ, from the triangular factors of U and Z."""
    (Q_U, R_U), (Q_Z, R_Z) = _qr(V.U), _qr(V.Z)
    A, S, Bt = torch.linalg.svd(R_U @ R_Z.mT)
    return Q_U @ A[:, :k], S[:k], Q_Z @ Bt[:k].mT


def _qr(Y: Float[Tensor, "m p"]) -> tuple[Float[Tensor, "m p"], Float[Tensor, "p p"]]:
    """Q and R of Y; at once where Y is orthonormal already, as the left factor of a sketch is."""
    identity = torch.eye(Y.shape[1], dtype=Y.dtype, device=Y.device)
    if bool((Y.mT @ Y - identity).abs().amax() < 1e3 * torch.finfo(Y.dtype).eps):
        return Y, identity
    Q, R = torch.linalg.qr(Y)
    return Q, R


def gram_svd(
    V: Matrix, k: int
) -> tuple[Float[Tensor, "*b m k"], Float[Tensor, "*b k"], Float[Tensor, "*b n k"]]:
    """The leading k singular triplets, from the eigenvectors of the smaller Gram matrix.

    In float64: squaring costs digits only of singular values that are tiny beside the first, and
    those hardly matter to a start.
    """
    if V.shape[-2] < V.shape[-1]:
        Z, S, U = gram_svd(V.T, k)
        return U, S, Z
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
