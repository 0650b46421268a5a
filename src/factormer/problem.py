"""The optimisation problem: min ½‖W Hᵀ − V‖² over W ≥ 0, H ≥ 0 (eq. 2), and penalties if asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.factors import Factors
from factormer.matrix import Matrix, Normal, n_entries
from factormer.matrix.base import inner
from factormer.terms import NOTHING, Asked, Terms

# Share of ‖V‖² below which ‖V‖² − 2⟨VH, W⟩ + ⟨WᵀW, HᵀH⟩ has too few digits left for a loss.
_FEW = 2**16  # entries of V that are looked at as fast as products are formed
RESOLVED = {torch.float32: 1e-3, torch.float64: 1e-12}


@dataclass(frozen=True, eq=False)
class Problem:
    """Factorise V at a given rank; or each of a stack of matrices.

    `asked` adds a penalty on each factor to the loss, or keeps some of its columns as they are.
    """

    V: Matrix
    rank: int
    asked: Asked = NOTHING

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}; it must be a whole number of at least 1")

    @property
    def T(self) -> Problem:
        """The transposed problem Vᵀ ≈ H Wᵀ, with the same loss at the swapped point (eq. 7)."""
        return Problem(self.V.T, self.rank, self.asked.swap())

    @property
    def is_plain(self) -> bool:
        """Whether the squared error is all there is to it."""
        return self.asked is NOTHING

    def normal(self, W: Float[Tensor, "*b m r"]) -> Normal:
        """The normal equations (VᵀW − l1, WᵀW + l2·I) of a half-step on H; l1, l2 penalise H.

        Where a column of W is zero, that of H is only a penalty to lower: it gets a curvature.
        """
        normal, terms = self.V.normal(W), self.asked.H
        if not terms.is_penalty:
            return normal
        diagonal = normal.WtW.diagonal(dim1=-2, dim2=-1) + terms.l2
        largest = diagonal.amax(dim=-1, keepdim=True)
        largest = torch.where(largest > 0, largest, torch.ones_like(largest))
        curved = torch.where(diagonal > 0, diagonal, largest)
        WtW = normal.WtW + torch.diag_embed(curved - diagonal + terms.l2)
        return Normal(normal.VtW - terms.l1, WtW)

    def mean(self) -> Float[Tensor, "*b"]:
        """The mean entry of each matrix."""
        return self.V.total() / n_entries(self.V)

    def normalized(self) -> tuple[Problem, Float[Tensor, "*b"]]:
        """The problem of V divided by its mean, as the paper trains and tests on, and that mean.

        A matrix of zeros is left as it is, with 1 in place of its mean.
        """
        mean = self.mean()
        if not bool(mean.all()):
            mean = torch.where(mean > 0, mean, torch.ones_like(mean))
        asked = self.asked if self.is_plain else self.asked.scaled(1 / float(mean))
        return replace(self, V=self.V.scaled(1 / mean), asked=asked), mean

    def sq_error(self, x: Factors, known: Normal | None = None) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² for little, from (VH, HᵀH), which a solver that has just updated W knows.

        Accumulated in float64; where that leaves too few digits, from the entries of V after all.
        With penalties they are added, twice, so that this is twice the loss: what solvers compare.
        """
        if known is None and math.prod(self.V.shape) <= _FEW:
            return self._exactly(x)
        VH, HtH = self.T.normal(x.H) if known is None else known  # with the penalty on W in them
        norm = self.V.sq_norm()
        error = norm - 2 * inner(VH, x.W) + inner(x.W.mT @ x.W, HtH)
        unclear = error < RESOLVED[self.V.dtype] * norm
        if self.asked.H.is_penalty:
            error = error + 2 * self.asked.H.penalty(x.H)
        if not bool(unclear.any()):
            return error
        return torch.where(unclear, self._exactly(x), error)

    def _exactly(self, x: Factors) -> Float[Tensor, "*b"]:
        error = self.V.sq_error(x).double()
        return error if self.is_plain else error + 2 * self.penalty(x)

    def penalty(self, x: Factors) -> Float[Tensor, "*b"]:
        """The penalties on both factors."""
        return self.asked.W.penalty(x.W) + self.asked.H.penalty(x.H)

    def loss(self, x: Factors) -> Float[Tensor, "*b"]:
        """½‖W Hᵀ − V‖² (eqs. 2 and 7), and the penalties."""
        loss = self.V.sq_error(x) / 2
        return loss if self.is_plain else loss + self.penalty(x).to(loss.dtype)

    def rmse(self, x: Factors) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖ / √(mn), the error of an entry (eq. 23)."""
        return (self.V.sq_error(x) / n_entries(self.V)).sqrt()

    def stationarity(self, x: Factors) -> Float[Tensor, "*b"]:
        """Norm of the projected gradient: zero just where no feasible direction descends.

        The gradient by H is H WᵀW − VᵀW; where H is zero only its negative part counts, and where
        it is fixed, nothing.
        """
        by_H, by_W = _projected_gradient(self, *x), _projected_gradient(self.T, *x.swap())
        return (by_H.square().sum(dim=(-2, -1)) + by_W.square().sum(dim=(-2, -1))).sqrt()


def _projected_gradient(
    problem: Problem, W: Float[Tensor, "*b m r"], H: Float[Tensor, "*b n r"]
) -> Float[Tensor, "*b n r"]:
    VtW, WtW = problem.V.normal(W)
    gradient = H @ WtW - VtW
    terms: Terms = problem.asked.H
    if terms.is_penalty:
        gradient = gradient + (terms.l1 + terms.l2 * H)
    gradient = torch.where(H > 0, gradient, gradient.clamp(max=0))
    return terms.held(gradient, torch.zeros_like(gradient))
