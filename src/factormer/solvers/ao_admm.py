"""AO-ADMM: alternate over the factors, a few ADMM sweeps of nonnegative least squares each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.base import Point


def admm_nnls(
    normal: Normal,
    H: Float[Tensor, "*b n r"],
    U: Float[Tensor, "*b n r"],
    *,
    rho: Float[Tensor, "*b"],
    n_inner: int,
    tol: float = 0.0,
) -> tuple[Float[Tensor, "*b n r"], Float[Tensor, "*b n r"]]:
    """Approximately solve min ½‖W Hᵀ − V‖² over H ≥ 0 (eq. 8), warm-started at (H, U).

    The dual step has the opposite sign to eq. 22, which diverges: docs/paper.md. With `tol`, stop
    early once primal and dual residuals are that small relative to H and U (Huang et al., 2016).
    """
    rho = rho[..., None, None]
    ridge = rho * torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)  # (r, r)
    inverse = spd_inverse(normal.WtW + ridge)  # reused by every sweep
    if not tol and (fused := kernels.fused_admm(H)):
        return fused.admm(normal.VtW, inverse, H, U, rho[..., 0, 0], n_inner)
    active = torch.ones_like(rho, dtype=torch.bool)  # members of the batch stop on their own
    for _ in range(n_inner):
        H_free = (normal.VtW + rho * (H + U)) @ inverse  # (20)
        H_next = (H_free - U).clamp(min=0)  # (21)
        U_next = U + H_next - H_free  # (22), with the sign that converges
        if not tol:
            H, U = H_next, U_next
            continue
        primal = _sq_norm(H_next - H_free) > tol * _sq_norm(H_next)
        dual = _sq_norm(H_next - H) > tol * _sq_norm(U_next)
        H, U = torch.where(active, H_next, H), torch.where(active, U_next, U)
        active = active & (primal | dual)
        if not active.any():
            break
    return H, U


def spd_inverse(G: Float[Tensor, "*b r r"]) -> Float[Tensor, "*b r r"]:
    """Inverse of a symmetric positive definite matrix, so that a sweep is one product.

    Through the inverse of its Cholesky factor: batched on any device, without a synchronisation.
    """
    L, _ = torch.linalg.cholesky_ex(G)
    identity = torch.eye(G.shape[-1], dtype=G.dtype, device=G.device).expand_as(G)
    L_inverse = torch.linalg.solve_triangular(L, identity, upper=False)
    return L_inverse.mT @ L_inverse


def _sq_norm(X: Float[Tensor, "*b n r"]) -> Float[Tensor, "*b 1 1"]:
    return X.square().sum(dim=(-2, -1), keepdim=True)


def weight_of(WtW: Float[Tensor, "*b r r"], share: float) -> Float[Tensor, "*b"]:
    """ρ = share·tr(WᵀW)/r."""
    rho = share * WtW.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    return torch.where(rho > 0, rho, torch.ones_like(rho))  # W = 0 leaves H where it is


class ADMMState(NamedTuple):
    """The point, the scaled dual variables of its two half-steps, and (VH, HᵀH) if known."""

    factors: Factors
    duals: Factors
    known: Normal | None = None

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² at the point."""
        return problem.sq_error(self.factors, self.known)


@dataclass(frozen=True)
class AOADMM:
    """The paper's solver: ρ = 1, five inner sweeps, the dual set to zero at each call (app. B).

    ρ = 1 suits data of mean 1 and small rank; on real data it can stall or oscillate. Not a descent
    method: the loss may rise from one iteration to the next.
    """

    rho: float = 1.0
    n_inner: int = 5

    def init(self, problem: Problem, x0: Factors) -> Point:
        return Point(x0)

    def step(self, problem: Problem, state: Point) -> Point:
        V, (W, H) = problem.V, state.factors
        H = self._nnls(V.normal(W), H)
        known = V.T.normal(H)
        return Point(Factors(self._nnls(known, W), H), known)  # the same code, by eq. 7

    def adopt(self, problem: Problem, state: Point, x: Factors) -> Point:
        return Point(x)

    def _nnls(self, normal: Normal, H: Tensor) -> Tensor:
        rho = normal.WtW.new_full(normal.WtW.shape[:-2], self.rho)
        H, _ = admm_nnls(normal, H, torch.zeros_like(H), rho=rho, n_inner=self.n_inner)
        return H


@dataclass(frozen=True)
class TraceAOADMM:
    """AO-ADMM as Huang et al. (2016) have it: ρ = `share`·tr(WᵀW)/r, so free of scale; duals kept.

    A half-step ends after `n_inner` sweeps, or once its residuals fall below `tol`.
    """

    n_inner: int = 5
    tol: float = 1e-2
    share: float = 1.0

    def init(self, problem: Problem, x0: Factors) -> ADMMState:
        return ADMMState(x0, Factors(torch.zeros_like(x0.W), torch.zeros_like(x0.H)))

    def step(self, problem: Problem, state: ADMMState) -> ADMMState:
        V, (W, H), (U_W, U_H) = problem.V, state.factors, state.duals
        H, U_H = self._nnls(V.normal(W), H, U_H)
        known = V.T.normal(H)
        W, U_W = self._nnls(known, W, U_W)  # the same code, by eq. 7
        return ADMMState(Factors(W, H), Factors(U_W, U_H), known)

    def adopt(self, problem: Problem, state: ADMMState, x: Factors) -> ADMMState:
        return ADMMState(x, state.duals)

    def _nnls(self, normal: Normal, H: Tensor, U: Tensor) -> tuple[Tensor, Tensor]:
        rho = weight_of(normal.WtW, self.share)
        return admm_nnls(normal, H, U, rho=rho, n_inner=self.n_inner, tol=self.tol)
