"""A start from the data itself: rows of V that the others are mixtures of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import Matrix
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.sentence import Sentence
from factormer.solvers.hals import hals_nnls

_TIED = 1e-6  # relative to the largest: rows that count as equally far from those chosen


@dataclass(frozen=True)
class Separable:
    """H holds r rows of V, found by successive projection; W is fitted to them.

    Right for data that is separable, or nearly so: pure pixels among mixtures, anchor words. With
    `by="columns"` W holds columns of V instead.
    """

    by: str = "rows"
    n_sweeps: int = 20

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        if len(problem.V.shape) > 2:
            raise ValueError(
                Sentence("{init=separable} takes one matrix; factorize a stack one by one")
            )
        if self.by == "columns":
            return Separable()(problem.T, rng).swap()
        V, r = problem.V, problem.rank
        chosen = anchors(V, min(r, *V.shape))
        H = rows_of(V, chosen).mT.contiguous()  # (n, k)
        if r > H.shape[1]:
            extra = torch.rand(H.shape[0], r - H.shape[1], generator=rng).to(H)
            H = torch.cat([H, extra * problem.mean()], dim=1)
        normal = V.T.normal(H)
        W = torch.full((V.shape[0], r), 1 / r).to(H)
        return Factors(
            hals_nnls(normal, W, n_sweeps=torch.tensor(self.n_sweeps, device=H.device)), H
        )


def anchors(V: Matrix, r: int) -> Int[Tensor, " r"]:
    """Rows of V chosen by successive projection (Araújo et al., 2001; Gillis & Vavasis, 2014).

    The row of largest norm, then the one that is largest after projection off those chosen, and so
    on. Rows are first scaled to sum 1: a mixture is then inside the hull of what it is made of.
    """
    n = V.shape[1]
    sums = (V @ torch.ones(n, 1, dtype=V.dtype, device=V.device)).squeeze(1)
    scale = torch.where(sums > 0, 1 / sums.clamp(min=torch.finfo(V.dtype).tiny), 0)
    left = torch.cat([v.square().sum(dim=1) for _, v in V.blocks(max(1, 2**20 // n))])
    left = left * scale.square()
    noise = 1e3 * torch.finfo(V.dtype).eps * left
    chosen, basis = [], torch.zeros(n, 0, dtype=V.dtype, device=V.device)
    for _ in range(r):
        i = int((left >= (1 - _TIED) * left.amax()).to(torch.uint8).argmax())  # the first of equals
        chosen.append(i)
        row = rows_of(V, torch.tensor([i], device=V.device)).squeeze(0) * scale[i]
        row = row - basis @ (basis.mT @ row)
        row = row - basis @ (basis.mT @ row)  # twice is enough
        q = row / row.norm().clamp(min=torch.finfo(V.dtype).tiny)
        basis = torch.cat([basis, q[:, None]], dim=1)
        left = left - (scale * (V @ q[:, None]).squeeze(1)).square()
        left = torch.where(left > noise, left, 0)
        left[i] = -1
    return torch.tensor(chosen, device=V.device)


def rows_of(V: Matrix, chosen: Int[Tensor, " k"]) -> Float[Tensor, "k n"]:
    """Some rows of V, dense."""
    picks = torch.zeros(V.shape[0], len(chosen), dtype=V.dtype, device=V.device)
    picks[chosen, torch.arange(len(chosen), device=V.device)] = 1
    return (V.T @ picks).mT
