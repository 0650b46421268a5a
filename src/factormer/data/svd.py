"""Truncated singular value decompositions that do not depend on rounding errors."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.data import Blocks, LowRank, Matrix, sketch

OVERSAMPLING = 10  # columns of a sketch beyond the rank
TIED = 1e-6  # relative to the largest: entries that count as zero, numbers that count as equal
_EXACT = 200  # sides up to which all singular vectors are cheap
_GPU_STACK = 2**15  # matrices that a GPU decomposes at once


def truncated_svd(
    V: Matrix, rank: int, rng: torch.Generator
) -> tuple[Float[Tensor, "*b m k"], Float[Tensor, "*b k"], Float[Tensor, "*b n k"]]:
    """Leading k = min(rank, m, n) singular triplets (U, S, Z) with V ≈ U diag(S) Zᵀ.

    Exact for small matrices and stacks, and for a sketch of large ones. Nothing depends on rounding
    errors, which differ between processors: signs are those of `leans`, and triplets that are
    rounding errors relative to the first are zero.
    """
    k = min(rank, *V.shape[-2:])
    if isinstance(V, LowRank):
        U, S, Z = lowrank_svd(V, k)
    elif isinstance(V, Blocks):
        U, S, Z = lowrank_svd(V.sketch(k + OVERSAMPLING, rng), k)
    elif len(V.shape) == 2 and min(V.shape) > _EXACT:
        U, S, Z = lowrank_svd(sketch(V, k + OVERSAMPLING, rng), k)
    else:
        U, S, Z = gram_svd(V, k)
    sign = torch.where(leans(U, Z), 1.0, -1.0).to(S) * (S > 0)
    return U * sign[..., None, :], S, Z * sign[..., None, :]


def leans(U: Float[Tensor, "*b m k"], Z: Float[Tensor, "*b n k"]) -> Bool[Tensor, "*b k"]:
    """Whether the pairs (u, z) have the larger part of u zᵀ in u₊z₊ᵀ, and not in u₋z₋ᵀ.

    If these are equal, up to rounding: whether the first of u's largest entries is positive.
    """
    plus, minus = (
        (s * U).clamp(min=0).norm(dim=-2) * (s * Z).clamp(min=0).norm(dim=-2) for s in (1, -1)
    )
    sizes = U.abs()
    first = (sizes >= (1 - TIED) * sizes.amax(dim=-2, keepdim=True)).to(torch.uint8).argmax(dim=-2)
    leading = U.gather(-2, first[..., None, :]).squeeze(-2)
    tied = (plus - minus).abs() <= TIED * (plus + minus)
    return torch.where(tied, leading > 0, plus > minus)


def lowrank_svd(
    V: LowRank, k: int
) -> tuple[Float[Tensor, "m k"], Float[Tensor, "k"], Float[Tensor, "n k"]]:
    """The leading k singular triplets of U Zᵀ, from the triangular factors of U and Z."""
    (Q_U, R_U), (Q_Z, R_Z) = _qr(V.U), _qr(V.Z)
    A, S, Bt = torch.linalg.svd(R_U @ R_Z.mT)
    S = torch.where(len(S) * torch.finfo(S.dtype).eps * S[:1] < S, S, 0)
    return Q_U @ A[:, :k], S[:k], Q_Z @ Bt[:k].mT


def _qr(Y: Float[Tensor, "m p"]) -> tuple[Float[Tensor, "m p"], Float[Tensor, "p p"]]:
    """Q and R of Y; without work if Y is orthonormal already, like the left factor of a sketch."""
    identity = torch.eye(Y.shape[1], dtype=Y.dtype, device=Y.device)
    if bool((Y.mT @ Y - identity).abs().amax() < 1e3 * torch.finfo(Y.dtype).eps):
        return Y, identity
    Q, R = torch.linalg.qr(Y)
    return Q, R


def gram_svd(
    V: Matrix, k: int
) -> tuple[Float[Tensor, "*b m k"], Float[Tensor, "*b k"], Float[Tensor, "*b n k"]]:
    """The leading k singular triplets, from the eigenvectors of the smaller Gram matrix.

    In float64: squaring costs digits only of singular values that are tiny relative to the first,
    and those hardly matter to a start.
    """
    if V.shape[-2] < V.shape[-1]:
        Z, S, U = gram_svd(V.T, k)
        return U, S, Z
    (_, entries), *_ = V.blocks(None)
    entries = entries.double()
    eigenvalues, Z = _eigh(entries.mT @ entries)  # ascending
    noise = V.shape[-1] * torch.finfo(torch.float64).eps * eigenvalues[..., -1:]
    S = torch.where(eigenvalues > noise, eigenvalues, 0)[..., -k:].flip(-1).sqrt()
    Z = Z[..., -k:].flip(-1)
    U = torch.nan_to_num(entries @ Z / S[..., None, :], nan=0.0, posinf=0.0, neginf=0.0)
    return U.to(V.dtype), S.to(V.dtype), Z.to(V.dtype)


def _eigh(G: Float[Tensor, "*b n n"]) -> tuple[Float[Tensor, "*b n"], Float[Tensor, "*b n n"]]:
    """Eigenvalues and eigenvectors; on a GPU at most `_GPU_STACK` matrices at once."""
    if G.dim() == 2:
        return tuple(torch.linalg.eigh(G))
    parts = [torch.linalg.eigh(part) for part in G.flatten(end_dim=-3).split(_GPU_STACK)]
    values, vectors = (torch.cat(list(some)) for some in zip(*parts, strict=True))
    return values.view(G.shape[:-1]), vectors.view(G.shape)
