"""Factorize a stream of rows, a batch at a time (online NMF).

For the squared error only A = XᵀW and B = WᵀW of past rows are kept, which is all that an H-update
may know (Mairal et al., 2010). For other losses it is the sum of their majorizers, each at the H
that its rows have met (Lefèvre et al., 2011).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Matrix, Normal
from factormer.data.factors import Factors
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
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
        """Return the statistics with a new batch; `kept` is the weight that the past keeps."""
        VtW, WtW = V.normal(W)
        A, B = kept * self.A + VtW, kept * self.B + WtW
        return Statistics(A, B, kept * self.n_rows + V.shape[0])

    def update(self, H: Float[Tensor, "n r"], on: Penalties) -> Float[Tensor, "n r"]:
        """Lower ½⟨H B, H⟩ − ⟨A, H⟩ and the penalties, L1 and L2, on H ≥ 0, from H."""
        with torch.no_grad():
            normal = penalised(Normal(self.A, self.B), on)
            return hals_nnls(normal, H, n_sweeps=torch.tensor(N_SWEEPS))


class Majorizer(NamedTuple):
    """A separable function of H that bounds the loss of the rows so far.

    For Kullback–Leibler it is Σ B·H − A·log H, up to a constant, with A = H̃ ⊙ (V / W H̃ᵀ)ᵀ W at the
    H̃ that each batch met and B = 1ᵀW; its minimum is A / B. For other losses the minimum is
    (A / B)^γ, γ being `Loss.exponent` (Févotte & Idier, 2011).
    """

    A: Float[Tensor, "n r"]
    B: Float[Tensor, "n r"]
    n_rows: float | int

    @staticmethod
    def empty(H: Float[Tensor, "n r"]) -> Majorizer:
        """Return the majorizer of no rows."""
        return Majorizer(torch.zeros_like(H), torch.zeros_like(H), 0)

    def after(self, problem: Problem, x: Factors, kept: float | int) -> Majorizer:
        """The bound with a new batch, tight at x; `kept` is the weight that the past keeps."""
        up, down = problem.misfit.parts(x)
        pull = x.H ** (1 / problem.loss.exponent) * up
        rows = kept * self.n_rows + problem.V.shape[0]
        return Majorizer(kept * self.A + pull, kept * self.B + down, rows)

    def update(self, H: Float[Tensor, "n r"], on: Penalties, exponent: float) -> Tensor:
        """Return its minimum with L1 and L2; H stays where nothing holds it."""
        l1, l2 = on.elastic or (0.0, 0.0)
        down, tiny = self.B + l1 + l2 * H, torch.finfo(H.dtype).tiny
        return torch.where(down > tiny, (self.A / down.clamp(min=tiny)) ** exponent, H)
