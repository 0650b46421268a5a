"""The Factormer for every rank as a start, and as an acceleration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import zero_padding
from factormer.data.factors import Factors
from factormer.data.svd import truncated_svd
from factormer.nn.anyfactormer import AnyFactormer, spread
from factormer.problem.problem import Problem
from factormer.starts.base import complete


@dataclass(frozen=True)
class Turned:
    """The truncated SVD, turned toward nonnegative factors by the layers of a network.

    Nothing but the SVD looks at V. The layers begin where all components have the same mean, and
    otherwise at random: `n_tries` times, of which the most nonnegative end is taken, or once from
    rank `many` on, as in `starts.Rotated`. All layers have the same weights, so that there can be
    more of them than in training.
    """

    model: AnyFactormer
    n_layers: int = 20
    n_tries: int = 4
    many: int = 30

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        V = problem.V
        U, S, Z = truncated_svd(V, problem.rank, rng)
        root = S.sqrt()[..., None, :]
        x = Factors(U * root, Z * root)
        tries = self.n_tries if problem.rank < self.many else 1
        R = torch.stack([spread(x, _chance(S, rng)) for _ in range(tries)])
        x = Factors(*(F.expand(tries, *F.shape) for F in x))
        x = _most_nonnegative(self.model(x, R, n_layers=self.n_layers))
        W, H = (complete(F.clamp(min=0), problem, rng) for F in x)
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols))


def _most_nonnegative(tries: Factors) -> Factors:
    """Of several points along the first axis, for each matrix the one least below zero."""
    X = torch.cat(list(tries), dim=-2)
    negative, whole = (Y.square().sum(dim=(-2, -1)) for Y in (X.clamp(max=0), X))
    share = negative / torch.where(whole > 0, whole, 1.0)  # (tries, *b)
    best = share.round(decimals=5).argsort(dim=0, stable=True)[:1, ..., None, None]
    return Factors(*(F.gather(0, best.expand(1, *F.shape[1:]))[0] for F in tries))


@dataclass(frozen=True)
class TurnedAccelerator:
    """Propose the best fit in the columns of the last W, turned by a network and cut off at zero.

    One product with V and decompositions of (r, r) matrices: for the first iterations, under a
    safeguard.
    """

    model: AnyFactormer
    n_layers: int | None = None

    def init(self, problem: Problem, x0: Factors) -> None:
        return None

    @torch.no_grad()
    def propose(
        self, problem: Problem, memory: None, *, before: Factors, stepped: Factors
    ) -> tuple[Factors, None]:
        V = problem.V
        Q = torch.linalg.qr(stepped.W).Q
        VtQ = V.normal(Q).VtW
        S, C = torch.linalg.eigh(VtQ.mT @ VtQ)
        values = S.clamp(min=0)
        sound = values > 1e-12 * values.amax(dim=-1, keepdim=True)
        root = torch.where(sound, values, 0.0).pow(0.25)[..., None, :]
        inverse = torch.where(root > 0, 1 / torch.where(root > 0, root, 1.0), 0.0)
        x = Factors(Q @ C * root, VtQ @ C * inverse)
        # Begin at the rotation that brings x nearest to where the solver is.
        near = balanced(stepped)
        A, _, Bt = torch.linalg.svd(x.W.mT @ near.W + x.H.mT @ near.H)
        x = self.model(x, A @ Bt, n_layers=self.n_layers)
        W, H = (F.clamp(min=0) for F in x)
        return Factors(zero_padding(W, V.rows), zero_padding(H, V.cols)), None


def balanced(x: Factors) -> Factors:
    """Scale components to equal norms in W and H, which leaves W Hᵀ as it is."""
    w, h = (F.norm(dim=-2, keepdim=True) for F in x)
    fine = (w > 0) & (h > 0)
    by = torch.where(fine, h / torch.where(fine, w, 1.0), 1.0).sqrt()
    return Factors(x.W * by, x.H / by)


def _chance(S: Float[Tensor, "*b k"], rng: torch.Generator) -> Float[Tensor, "*b k k"]:
    """Random rotations, the same for the same seed on every device."""
    k = S.shape[-1]
    chance = torch.randn(*S.shape[:-1], k, k, generator=rng, dtype=torch.float64)
    return torch.linalg.qr(chance).Q.to(S)
