"""The truncated SVD, rotated toward the nonnegative orthant."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import zero_padding
from factormer.data.factors import Factors
from factormer.data.svd import truncated_svd
from factormer.problem.problem import Problem
from factormer.starts.base import complete

_FEW_ROWS = 512  # that the first steps look at
_GPU_SVD = 32  # sides up to which a GPU decomposes many matrices at once


@dataclass(frozen=True)
class Rotated:
    """The truncated SVD, rotated toward the nonnegative orthant.

    With V ≈ U S Zᵀ, every orthogonal R gives V ≈ (U√S R)(Z√S R)ᵀ. Take the one that comes nearest
    to nonnegative factors, and their nonnegative parts. At most `n_rows` rows of X = [U√S; Z√S] are
    looked at, since R has only r² entries; nothing costs mn once the SVD is known. From rank `many`
    on, one rotation is tried instead of `n_tries`: of so many components, some turn out well in
    every rotation and some do not, so that all are about as good.
    """

    n_steps: int = 30
    n_rows: int = 4096
    n_tries: int = 4
    many: int = 30

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        return self.candidates(problem, rng)[0]

    def candidates(self, problem: Problem, rng: torch.Generator) -> list[Factors]:
        """Starts from several random rotations, the most nonnegative first."""
        V = problem.V
        U, S, Z = truncated_svd(V, problem.rank, rng)
        root = S.sqrt()[..., None, :]
        X = torch.cat([U * root, Z * root], dim=-2)
        some = _some_rows(X, self.n_rows, rng)
        n_tries = self.n_tries if problem.rank < self.many else 1
        R = rotations(some, rng, n_steps=self.n_steps, n_tries=n_tries)
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

    By alternating projections from random rotations, which end in different places; half of the
    steps look only at some of the rows. In float32, which is faster and good enough, except for a
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
    """R after `n_steps` projections of X R onto the orthant, and of that onto rotations of X.

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
    """The rotation nearest to M; on a GPU, larger SVDs take longer than going by the CPU."""
    A, _, Bt = torch.linalg.svd(M.cpu() if M.is_cuda and M.shape[-1] > _GPU_SVD else M)
    return (A @ Bt).to(M.device)


def _some_rows(X: Tensor, count: int, rng: torch.Generator) -> Tensor:
    if X.shape[-2] <= count:
        return X
    return X[..., torch.randperm(X.shape[-2], generator=rng)[:count].to(X.device), :]
