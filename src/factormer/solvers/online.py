"""Factorize a stream of rows, a batch at a time (online NMF).

Of past rows only A = XᵀW and B = WᵀW are kept, which is all that an H-update may know
(Mairal et al., 2010; Lefèvre et al., 2011).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Matrix, Normal
from factormer.problem.penalties import Penalties
from factormer.solvers.hals import hals_nnls, penalised

N_SWEEPS = 10  # in an update of H, once per batch


class Statistics(NamedTuple):
    """A = XᵀW (n, r) and B = WᵀW (r, r) of the rows so far, the older ones counting for less."""

    A: Float[Tensor, "n r"]
    B: Float[Tensor, "r r"]
    n_rows: float | int

    @staticmethod
    def of_fit(
        H: Float[Tensor, "n r"], WtW: Float[Tensor, "r r"], n_rows: float | int
    ) -> Statistics:
        """Statistics under which H is optimal, with that weight."""
        return Statistics(H @ WtW, WtW, n_rows)

    def after(self, V: Matrix, W: Float[Tensor, "m r"], kept: float | int) -> Statistics:
        """Those with a new batch; `kept` is the weight that the past keeps."""
        VtW, WtW = V.normal(W)
        A, B = kept * self.A + VtW, kept * self.B + WtW
        return Statistics(A, B, kept * self.n_rows + V.shape[0])

    def update(self, H: Float[Tensor, "n r"], on: Penalties) -> Float[Tensor, "n r"]:
        """Lower ½⟨H B, H⟩ − ⟨A, H⟩ and the penalties, L1 and L2, on H ≥ 0, from H."""
        with torch.no_grad():
            normal = penalised(Normal(self.A, self.B), on)
            return hals_nnls(normal, H, n_sweeps=torch.tensor(N_SWEEPS))
