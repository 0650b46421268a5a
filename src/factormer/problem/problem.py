"""The optimisation problem: min ½‖W Hᵀ − V‖² over W ≥ 0, H ≥ 0 (eq. 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Matrix, Normal, n_entries
from factormer.data.base import inner
from factormer.data.factors import Factors, every, some

_FEW = 2**16  # entries of V that are looked at as fast as products are formed
# Share of ‖V‖² below which ‖V‖² − 2⟨VH, W⟩ + ⟨WᵀW, HᵀH⟩ has too few digits left for a loss.
RESOLVED = {torch.float32: 1e-3, torch.float64: 1e-12}
_BLURRED = {torch.float32: 1e-2, torch.float64: 1e-4}  # and for a number that is reported


@dataclass(frozen=True, eq=False)
class Problem:
    """Factorise V at a given rank; or each of a stack of matrices.

    `resolved` says whether errors from products have digits enough; where it is False, the entries
    of V are looked at as well. None: look at each error, which on a GPU has to be waited for.
    """

    V: Matrix
    rank: int
    resolved: bool | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}; it must be a whole number of at least 1")

    @property
    def T(self) -> Problem:
        """The transposed problem Vᵀ ≈ H Wᵀ, with the same loss at the swapped point (eq. 7)."""
        return replace(self, V=self.V.T)

    def size(self) -> Float[Tensor, "*b"]:
        """The number of entries that count."""
        return n_entries(self.V)

    def mean(self) -> Float[Tensor, "*b"]:
        """The mean entry of each matrix."""
        return (self.V.total() / n_entries(self.V)).to(self.V.dtype)

    def normalized(self) -> tuple[Problem, Float[Tensor, "*b"]]:
        """The problem of V divided by its mean, as the paper trains and tests on, and that mean.

        A matrix of zeros is left as it is, with 1 in place of its mean.
        """
        mean, total = self.mean(), self.V.total()
        if not every(total > 0):
            mean = torch.where(total > 0, mean, torch.ones_like(mean))
        return replace(self, V=self.V.scaled(mean.reciprocal())), mean

    def unit(self, mean: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        """What an error of the problem of V / mean is multiplied by to be one of this."""
        return mean.double()

    def scaled_back(self, x: Factors, c: Float[Tensor, "*b"]) -> Factors:
        """The point of the problem of c·V that x is of this one."""
        return x.scale(c)

    def taken(self, x: Factors) -> Factors:
        """The point in the precision of V, with what is known of it in its place."""
        return Factors(x.W.to(self.V.dtype), x.H.to(self.V.dtype))

    def sq_error(self, x: Factors, known: Normal | None = None) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² for little, from (VH, HᵀH), which a solver that has just updated W knows.

        Accumulated in float64; where that leaves too few digits, from the entries of V after all.
        """
        if known is None and math.prod(self.V.shape) <= _FEW:
            return self.V.sq_error(x).double()
        VH, HtH = self.V.T.normal(x.H) if known is None else known
        norm = self.V.sq_norm()
        error = norm - 2 * inner(VH, x.W) + inner(x.W.mT @ x.W, HtH)
        if self.resolved:
            return error
        unclear = error < RESOLVED[self.V.dtype] * norm
        if self.resolved is None and not some(unclear):
            return error
        return torch.where(unclear, self.V.sq_error(x).double(), error)

    def blurred(self) -> Float[Tensor, "*b"]:
        """The rmse up to which errors from products lack digits that a report should have."""
        return (_BLURRED[self.V.dtype] * self.V.sq_norm() / self.size()).sqrt()

    def loss(self, x: Factors) -> Float[Tensor, "*b"]:
        """½‖W Hᵀ − V‖² (eqs. 2 and 7)."""
        return self.V.sq_error(x) / 2

    def rmse(self, x: Factors) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖ / √(mn), the error of an entry (eq. 23)."""
        return (self.V.sq_error(x) / n_entries(self.V)).sqrt()

    def stationarity(self, x: Factors) -> Float[Tensor, "*b"]:
        """Norm of the projected gradient: zero just where no feasible direction descends.

        The gradient by H is H WᵀW − VᵀW; where H is zero only its negative part counts.
        """
        by_H, by_W = _projected_gradient(self.V, *x), _projected_gradient(self.V.T, *x.swap())
        return (by_H.square().sum(dim=(-2, -1)) + by_W.square().sum(dim=(-2, -1))).sqrt()


def _projected_gradient(
    V: Matrix, W: Float[Tensor, "*b m r"], H: Float[Tensor, "*b n r"]
) -> Float[Tensor, "*b n r"]:
    VtW, WtW = V.normal(W)
    gradient = H @ WtW - VtW
    return torch.where(H > 0, gradient, gradient.clamp(max=0))
