"""A start for shares that sum to one: rows of V that are the corners of the largest simplex."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import Matrix
from factormer.data.factors import Factors
from factormer.data.svd import truncated_svd
from factormer.problem.problem import Problem
from factormer.sentence import Sentence
from factormer.solvers.coding import Coder
from factormer.starts.separable import Separable, rows_of

_GAIN = 1e-6  # by which an exchange has to enlarge the volume
_ROUNDS = 20  # of exchanges, at most; a few are usual


@dataclass(frozen=True)
class Vertices:
    """H holds r rows of V whose simplex is as large as exchanges make it; W is fitted to them.

    Right where rows of W sum to one, or nearly: each row of V is then a point of the simplex that
    the components span, and the purest rows are near its corners (N-FINDR: Winter, 1999). Unlike
    `Separable`, it does not divide rows by their sums, and finds dark components too. With
    `by="columns"` W holds columns of V instead. Rows of W sum to `total`, if it is given.
    """

    by: str = "rows"
    total: float | None = None

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        if len(problem.V.shape) > 2:
            raise ValueError(
                Sentence("{init=vertices} takes one matrix; factorize a stack one by one")
            )
        if self.by == "columns":
            return Vertices(total=self.total)(problem.T, rng).swap()
        V, r = problem.V, problem.rank
        if r > min(V.shape):
            return Separable()(problem, rng)
        H = rows_of(V, corners(points(V, r, rng))).mT.contiguous()  # (n, r)
        H = H if self.total is None else H / self.total
        return Factors(Coder.of(H, total=self.total)(V), H)


def points(V: Matrix, r: int, rng: torch.Generator) -> Float[Tensor, "m r"]:
    """The rows of V in the r − 1 directions of largest variance, of equal size; and 1 each.

    Those are the directions of the plane that the corners of a simplex span.
    """
    U, S, _ = truncated_svd(V, r, rng)
    X = (U * S).double()  # (m, r), whose distances are nearly those of V
    X = X - X.mean(dim=0)
    _, Q = torch.linalg.eigh(X.mT @ X)
    X = X @ Q.flip(-1)[:, : r - 1]
    X = X / X.abs().amax(dim=0).clamp(min=torch.finfo(X.dtype).tiny)
    return torch.cat([torch.ones(len(X), 1).to(X), X], dim=1)


def corners(Z: Float[Tensor, "m r"]) -> Int[Tensor, " r"]:
    """Rows of Z with the largest |det|, up to exchanges of one of them, from a greedy choice."""
    chosen = _greedy(Z)
    for _ in range(_ROUNDS):
        exchanged = False
        for k in range(len(chosen)):
            others = Z[[i for j, i in enumerate(chosen) if j != k]]
            normal = _normal(others)  # |det| is proportional to |Z normal|
            sizes = (Z @ normal).abs()
            best = int(_first_largest(sizes))
            if float(sizes[best]) > (1 + _GAIN) * float(sizes[chosen[k]]):
                chosen[k], exchanged = best, True
        if not exchanged:
            break
    return torch.tensor(chosen, device=Z.device)


def _greedy(Z: Float[Tensor, "m r"]) -> list[int]:
    """One row after another, each the farthest from the span of those before it."""
    chosen: list[int] = []
    left = Z.clone()
    for _ in range(Z.shape[1]):
        i = int(_first_largest(left.square().sum(dim=1)))
        chosen.append(i)
        q = left[i] / left[i].norm().clamp(min=torch.finfo(Z.dtype).tiny)
        left = left - (left @ q)[:, None] * q
        left[chosen] = 0
    return chosen


def _normal(rows: Float[Tensor, "k r"]) -> Float[Tensor, " r"]:
    """The direction that is orthogonal to r − 1 rows."""
    return torch.linalg.svd(rows, full_matrices=True).Vh[-1]


def _first_largest(sizes: Float[Tensor, " m"]) -> Int[Tensor, ""]:
    """Return the place of the largest; of those that equal it, up to rounding, the first."""
    return (sizes >= (1 - _GAIN) * sizes.amax()).to(torch.uint8).argmax()
