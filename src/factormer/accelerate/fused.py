"""An iteration of extrapolated ADMM on a GPU in few kernels, in place, to be recorded.

Its twin is `Judged.step`. Inverses and Gram matrices are made on a second stream,
while V is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from factormer import kernels
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data import Matrix
from factormer.data.split import WIDE, Split
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import TraceAOADMM, spd_inverse


@dataclass(frozen=True, eq=False)
class Fused:
    """Iterations on `state`, whose tensors they overwrite; and what they need beside it.

    The error is that from products, without a look at its digits.
    """

    V: Matrix
    solver: TraceAOADMM
    accelerator: Extrapolation
    state: Any  # a RestartedState
    kernels: ModuleType
    side: torch.cuda.Stream
    stepped: tuple[Tensor, Tensor]  # W and H
    y_halves: Tensor
    left: tuple[Any, Any]  # by the half-steps of W and of H
    kept: Tensor
    beta: Tensor

    @staticmethod
    def of(solver: Any, accelerator: Any, problem: Problem, state: Any) -> Fused | None:
        """None where the kernels do not serve: stacks, float64, high ranks, other solvers."""
        W, H = state.factors
        plain = isinstance(solver, TraceAOADMM) and not solver.tol and W.dim() == 2
        if not plain or not isinstance(accelerator, Extrapolation) or not problem.resolved:
            return None
        found = kernels.fused_iteration(W, H)
        if found is None:
            return None
        V = problem.V
        wide = WIDE if isinstance(V, Split) else 0
        left = found.Left.of(W, 0, misfit=True), found.Left.of(H, wide, misfit=False)
        kept, beta = torch.zeros(1, dtype=torch.int32, device=V.device), W.new_zeros(1)
        stepped = torch.empty_like(W), torch.empty_like(H)
        y_halves = found.Left.of(W, wide, misfit=False).halves
        side = torch.cuda.Stream(V.device)
        return Fused(
            V, solver, accelerator, state, found, side, stepped, y_halves, left, kept, beta
        )

    def __call__(self) -> list[Tensor]:
        """One iteration; what it returns has to live until all of it has run, or is recorded."""
        state, K = self.state, self.kernels
        x, y, duals = state.factors, state.inner.factors, state.inner.duals
        W, H = self.stepped
        left_w, left_h = self.left
        if isinstance(self.V, Split):
            K.halve(y.W, self.y_halves)
        n_inner = self.solver.n_inner
        first = self._equations(self.V.T, y.W, self.y_halves)
        K.half_step(*first, y.H, duals.H, H, left_h, n_inner)
        second = self._equations(self.V, H, left_h.halves)
        K.half_step(*second, y.W, duals.W, W, left_w, n_inner)
        K.judge(
            left_w.misfit,
            self.V.sq_norm(),
            state.error,
            state.plain,
            state.memory,
            self.accelerator.rates,
            self.kept,
            self.beta,
        )
        K.propose(x.W, W, y.W, self.kept, self.beta)
        K.propose(x.H, H, y.H, self.kept, self.beta)
        return [*first[0], *first[1:], *second[0], *second[1:]]

    def _equations(self, V: Matrix, X: Tensor, halves: Tensor) -> tuple[Any, ...]:
        """VX as the kernels take it, XᵀX, the inverse that ADMM needs, and ρ."""
        main = torch.cuda.current_stream(V.device)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            gram = (X.mT @ X).contiguous()
            rho, ridged = self.kernels.ridge(gram, self.solver.share)
            inverse = spd_inverse(ridged).contiguous()
        products = V.of_halves(halves) if isinstance(V, Split) else ((V @ X).contiguous(),)
        main.wait_stream(self.side)
        return products, gram, inverse, rho
