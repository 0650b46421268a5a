"""Starting points: of chance, merged, and from a truncated singular value decomposition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Matrix, zero_padding
from factormer.data.factors import Factors, every, where
from factormer.data.svd import TIED, leans, truncated_svd
from factormer.problem.problem import Problem
from factormer.solvers.hals import HALS
from factormer.solvers.loop import iterated

_FEW_ROWS = 512  # that tell where a rotation should go at first
_PROPORTION = 1e6  # how much larger than V, or smaller, a given start may be
_GPU_SVD = 32  # sides up to which a GPU decomposes many matrices at once


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
    """A start that is known already; one that is out of all proportion to V is brought to scale."""

    x0: Factors

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        W, H = self.x0
        tops = [F.abs().amax(dim=(-2, -1)).double() for F in (W, H)]
        if not every((tops[0] > 0) & (tops[1] > 0)):
            return self.x0
        units = [F.double() / top[..., None, None] for F, top in zip((W, H), tops, strict=True)]
        level = (units[0].abs().mean(dim=-2) * units[1].abs().mean(dim=-2)).sum(dim=-1)
        apart = tops[0].log() + tops[1].log() + (level / problem.mean().double()).log()
        fits = (apart.abs() < math.log(_PROPORTION)) | (level == 0)  # as W Hᵀ = 0 has no scale
        if every(fits):
            return self.x0
        x = Factors(*units).scale(problem.mean().double() / level)
        return where(fits, self.x0, Factors(x.W.to(W), x.H.to(H)))


@dataclass(frozen=True)
class Merged:
    """Another start with more components than wanted, iterated a little, and merged in pairs.

    Components compete before they are few: that costs about what it saves in iterations to come,
    and they end nearer to the optimum. Nothing is decomposed, so it suits sparse data.
    """

    base: Initializer = field(default_factory=Random)
    surplus: float = 0.5  # components beyond the rank, as a share of it
    n_iter: int = 2

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        wider = Problem(problem.V, problem.rank + math.ceil(self.surplus * problem.rank))
        state = iterated(wider, HALS(alpha=0.0), self.base(wider, rng), self.n_iter)
        return merge(state.factors, problem.rank)


def merge(x: Factors, rank: int) -> Factors:
    """Merge the components of x, two at a time, until there are `rank`.

    Of all pairs, the one whose w₁h₁ᵀ + w₂h₂ᵀ is nearest to a matrix of rank 1 comes first: that is
    the pair of least second singular value, which the Gram matrices of W and H tell. It becomes
    w₁ + w₂ and the mean of h₁ and h₂ by their length, where each wᵢ is as long as its hᵢ.
    """
    *batch, _, k = x.W.shape
    grams = ((F.double().mT @ F.double()).cpu().view(-1, k, k).numpy() for F in x)
    mixed = [_merging(A, B, rank) for A, B in zip(*grams, strict=True)]
    P, Q = (
        torch.from_numpy(np.stack(M)).to(x.W).view(*batch, k, rank)
        for M in zip(*mixed, strict=True)
    )
    return Factors(x.W @ P, x.H @ Q)


def _merging(A: np.ndarray, B: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The k × rank matrices that merge the columns of W and H, from A = WᵀW and B = HᵀH."""
    a, b = A.diagonal(), B.diagonal()
    alive = (a > 0) & (b > 0)
    balance = np.where(alive, b, 1) / np.where(alive, a, 1)
    P, Q = np.diag(balance**0.25), np.diag(balance**-0.25)
    A, B = P @ A @ P, Q @ B @ Q
    while len(A) > rank:
        first, other = _nearest_pair(A, B)
        s, t = ((A[c, c] * B[c, c]) ** 0.25 for c in (first, other))  # the lengths of w and h
        share = t / (s + t) if s + t > 0 else 0.5
        mix_W = np.delete(np.eye(len(A)), other, axis=1)
        mix_H = mix_W.copy()
        mix_W[other, first], mix_H[other, first], mix_H[first, first] = 1, share, 1 - share
        A, B = mix_W.T @ A @ mix_W, mix_H.T @ B @ mix_H
        P, Q = P @ mix_W, Q @ mix_H
    return P, Q


def _nearest_pair(A: np.ndarray, B: np.ndarray) -> tuple[int, int]:
    """The pair of components, the first before the other, of least second singular value."""
    a, b = A.diagonal(), B.diagonal()
    trace = np.add.outer(a * b, a * b) + 2 * A * B  # sum of both squared singular values
    area = (np.outer(a, a) - A * A) * (np.outer(b, b) - B * B)  # their product
    root = np.sqrt(np.maximum(trace * trace - 4 * area, 0))
    second = area / np.maximum(trace + root, np.finfo(float).tiny)
    second[second <= 1e-12 * trace] = 0  # of rank 1, up to rounding: then the first of them
    second[np.tril_indices(len(A))] = np.inf
    first, other = divmod(int(second.argmin()), len(A))
    return first, other


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
    n_tries: int = 4

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        return self.candidates(problem, rng)[0]

    def candidates(self, problem: Problem, rng: torch.Generator) -> list[Factors]:
        """Starts from several rotations of chance, the most nonnegative first."""
        V = problem.V
        U, S, Z = truncated_svd(V, problem.rank, rng)
        root = S.sqrt()[..., None, :]
        X = torch.cat([U * root, Z * root], dim=-2)
        some = _some_rows(X, self.n_rows, rng)
        R = rotations(some, rng, n_steps=self.n_steps, n_tries=self.n_tries)
        starts = []
        for turned in (X @ R).clamp(min=0):
            W, H = turned.split([U.shape[-2], Z.shape[-2]], dim=-2)
            W, H = (complete(F, problem, rng) for F in (W, H))
            starts.append(Factors(zero_padding(W, V.rows), zero_padding(H, V.cols)))
        return starts


def rotations(
    X: Float[Tensor, "*b k r"], rng: torch.Generator, *, n_steps: int, n_tries: int
) -> Float[Tensor, "t *b r r"]:
    """Orthogonal R that make X R nearly nonnegative: min ‖X R − P‖ over R and P ≥ 0, best first.

    By alternating projections from rotations of chance, which end in different places; half of the
    steps look at some of the rows alone. In float32, which is faster and good enough, but for a
    last step that makes R orthogonal to all digits.
    """
    r, given = X.shape[-1], X.dtype
    X = X.float()
    chance = torch.randn(n_tries, *X.shape[:-2], r, r, generator=rng).to(X.device)
    R = _turned(X[..., :_FEW_ROWS, :], torch.linalg.qr(chance).Q, n_steps // 2)
    R = _turned(X, R, n_steps - n_steps // 2)
    negative = (X @ R).clamp(max=0).square().sum(dim=(-2, -1))  # (n_tries, *b)
    share = negative / X.square().sum(dim=(-2, -1)).clamp(min=torch.finfo(X.dtype).tiny)
    order = share.round(decimals=5).argsort(dim=0, stable=True)[..., None, None].expand(R.shape)
    R = R.gather(0, order).to(given)
    return 1.5 * R - 0.5 * R @ (R.mT @ R)


def _turned(
    X: Float[Tensor, "*b k r"], R: Float[Tensor, "t *b r r"], n_steps: int, relax: float = 3.0
) -> Float[Tensor, "t *b r r"]:
    """R after so many projections of X R onto the orthant, and of that onto the rotations of X.

    The first overshoots by the factor `relax`, which takes several times fewer steps than 1: a
    negative y becomes (1 − relax)·y. The second is Procrustes'. All t rotations lie side by side in
    the products, and Y is changed in place: X is read once, and little memory is written.
    """
    for _ in range(n_steps):
        Y = X @ R.movedim(0, -2).flatten(-2)  # (*b, k, t·r)
        P = torch.nn.functional.leaky_relu_(Y, 1 - relax)
        M = (X.mT @ P).unflatten(-1, (len(R), -1)).movedim(-2, 0)  # (t, *b, r, r)
        R = _polar(M)
    return R


def _polar(M: Float[Tensor, "*b r r"]) -> Float[Tensor, "*b r r"]:
    """The rotation nearest to M; on a GPU, SVDs beyond this size take longer than the way back."""
    A, _, Bt = torch.linalg.svd(M.cpu() if M.is_cuda and M.shape[-1] > _GPU_SVD else M)
    return (A @ Bt).to(M.device)


def _some_rows(X: Tensor, count: int, rng: torch.Generator) -> Tensor:
    if X.shape[-2] <= count:
        return X
    return X[..., torch.randperm(X.shape[-2], generator=rng)[:count].to(X.device), :]


def _uniform(shape: tuple[int, ...], V: Matrix, rng: torch.Generator) -> Tensor:
    drawn = torch.rand(shape, generator=rng, device=rng.device)  # in float32: that is faster
    return drawn.to(V.device, V.dtype)


def nndsvd(
    U: Float[Tensor, "*b m k"], S: Float[Tensor, "*b k"], Z: Float[Tensor, "*b n k"]
) -> Factors:
    """Keep of each singular pair (u, z) its larger nonnegative part, u₊z₊ᵀ or u₋z₋ᵀ.

    The leading pair is nonnegative up to sign (Perron–Frobenius), and kept whole. Entries that are
    rounding beside the largest of their component are zero, as in scikit-learn.
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
