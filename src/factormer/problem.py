"""The optimisation problem: min ½‖W Hᵀ − V‖² over W ≥ 0, H ≥ 0 (eq. 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.factors import Factors
from factormer.matrix import Matrix


@dataclass(frozen=True, eq=False)
class Problem:
    """Factorise V at a given rank; or each of a stack of matrices."""

    V: Matrix
    rank: int

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}; it must be a whole number of at least 1")

    @property
    def T(self) -> Problem:
        """The transposed problem Vᵀ ≈ H Wᵀ, with the same loss at the swapped point (eq. 7)."""
        return Problem(self.V.T, self.rank)

    @property
    def sizes(self) -> Float[Tensor, "*b"]:
        """The number of real entries m·n of each matrix, padding left out."""
        *batch, m, n = self.V.shape
        rows = torch.tensor(m) if self.V.rows is None else self.V.rows.sum(-1)
        cols = torch.tensor(n) if self.V.cols is None else self.V.cols.sum(-1)
        return (rows * cols).to(device=self.V.device, dtype=self.V.dtype).expand(batch)

    def mean(self) -> Float[Tensor, "*b"]:
        """The mean entry of each matrix."""
        return self.V.total() / self.sizes

    def normalized(self) -> tuple[Problem, Float[Tensor, "*b"]]:
        """The problem of V divided by its mean, as the paper trains and tests on, and that mean.

        A matrix of zeros is left as it is, with 1 in place of its mean.
        """
        mean = self.mean()
        mean = torch.where(mean > 0, mean, torch.ones_like(mean))
        return Problem(self.V.scaled(1 / mean), self.rank), mean

    def loss(self, x: Factors) -> Float[Tensor, "*b"]:
        """½‖W Hᵀ − V‖² (eqs. 2 and 7)."""
        return self.V.sq_error(x) / 2

    def rmse(self, x: Factors) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖ / √(mn), the error of an entry (eq. 23)."""
        return (self.V.sq_error(x) / self.sizes).sqrt()

    def stationarity(self, x: Factors) -> Float[Tensor, "*b"]:
        """Norm of the projected gradient: zero just where no feasible direction descends.

        The gradient by H is H WᵀW − VᵀW; where H is zero only its negative part counts.
        """
        halves = [_projected_gradient(self.V, *x), _projected_gradient(self.V.T, *x.swap())]
        return sum(g.square().sum(dim=(-2, -1)) for g in halves).sqrt()


def _projected_gradient(
    V: Matrix, W: Float[Tensor, "*b m r"], H: Float[Tensor, "*b n r"]
) -> Float[Tensor, "*b n r"]:
    VtW, WtW = V.normal(W)
    gradient = H @ WtW - VtW
    return torch.where(H > 0, gradient, gradient.clamp(max=0))
