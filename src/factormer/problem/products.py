"""The squared error from products with V, which solvers already have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Matrix, Normal, n_entries
from factormer.data.base import inner
from factormer.data.factors import Factors, some

_FEW = 2**16  # entries of V up to which reading them is as fast as forming products
# Share of ‖V‖² below which ‖V‖² − 2⟨VH, W⟩ + ⟨WᵀW, HᵀH⟩ has too few digits left for a loss.
RESOLVED = {torch.float32: 1e-3, torch.float64: 1e-12}
_BLURRED = {torch.float32: 1e-2, torch.float64: 1e-4}  # and for a reported number


@dataclass(frozen=True, eq=False)
class FromProducts:
    """½‖W Hᵀ − V‖² with equal weights.

    `resolved` says whether errors from products have enough digits; if False, the entries of V are
    read as well. None: check each error, which makes the CPU wait for a GPU.
    """

    V: Matrix
    resolved: bool | None = None

    def value(self, x: Factors) -> Float[Tensor, "*b"]:
        """½‖W Hᵀ − V‖² (eqs. 2 and 7), from the entries of V."""
        return self.V.sq_error(x) / 2

    def sq_error(self, x: Factors, known: Normal | None = None) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² from (VH, HᵀH), which a solver that has just updated W knows.

        Accumulated in float64; if that leaves too few digits, computed from the entries of V.
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
        return (_BLURRED[self.V.dtype] * self.V.sq_norm() / n_entries(self.V)).sqrt()

    def gradient(self, x: Factors) -> Float[Tensor, "*b n r"]:
        """The gradient by H: H WᵀW − VᵀW."""
        VtW, WtW = self.V.normal(x.W)
        return x.H @ WtW - VtW

    def parts(self, x: Factors) -> tuple[Float[Tensor, "*b n r"], Float[Tensor, "*b n r"]]:
        """(VᵀW, H WᵀW), whose difference the gradient is."""
        VtW, WtW = self.V.normal(x.W)
        return VtW, x.H @ WtW
