"""Proximal ADMM for training: a stack of matrices, with a gradient of its own.

As in `sweeps`, each half-step remembers only where its steps ended. No number is looked at on the
way, so that an update can be recorded as a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import spd_inverse, weight_of


class Prox(NamedTuple):
    """The proximal step of a factor: shares with a sum, or entries less a threshold."""

    l1: float
    total: float | None

    @staticmethod
    def of(on: Penalties) -> Prox:
        """From penalties that are L1, or a sum of rows."""
        l1, l2, total = on.by_rows or (0.0, 1.0, None)
        if l2:
            raise ValueError(f"{on} is not L1 or a Simplex by rows, which training is for")
        return Prox(l1, total)

    def __call__(self, X: Float[Tensor, "b n r"], less: Tensor) -> Float[Tensor, "b n r"]:
        if self.total is None:
            return (X - less).clamp(min=0) if self.l1 else X.clamp(min=0)
        X = X - X.amax(dim=-1, keepdim=True)
        excess = X.sort(dim=-1, descending=True).values.cumsum(dim=-1) - self.total
        ranks = torch.arange(1, X.shape[-1] + 1, dtype=X.dtype, device=X.device)
        return (X - (excess / ranks).amax(dim=-1, keepdim=True)).clamp(min=0)


class Steps(torch.autograd.Function):
    """Some steps of ADMM: X ← F + X(I − P) + H(2P − I), H ← prox(X), and the dual is H − X.

    With P = ρ(G + ρI)⁻¹ and F = VᵀW(G + ρI)⁻¹ these are eqs. 20–22; the twin is
    `solvers.proximal.admm_quadratic`. `less` is the threshold of L1.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        F: Float[Tensor, "b n r"],
        P: Float[Tensor, "b r r"],
        less: Float[Tensor, "b 1 1"],
        H: Float[Tensor, "b n r"],
        X: Float[Tensor, "b n r"],
        prox: Prox,
        n_steps: int,
    ) -> tuple[Float[Tensor, "b n r"], Float[Tensor, "b n r"]]:
        M, points = _turns(P), []
        for _ in range(n_steps):
            points.append(torch.cat([X, H], dim=-1))
            X = torch.baddbmm(F, points[-1], M)
            H = prox(X, less)
        points.append(torch.cat([X, H], dim=-1))
        ctx.save_for_backward(M, torch.stack(points))
        ctx.prox = prox
        return H, H - X

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, by_H: Float[Tensor, "b n r"], by_U: Float[Tensor, "b n r"]
    ) -> tuple[Any, ...]:
        M, points = ctx.saved_tensors  # (b, 2r, r), (s + 1, b, n, 2r)
        r, prox = by_H.shape[-1], ctx.prox
        stays = (points[1:, ..., r:] > 0).to(by_H.dtype)  # (s, b, n, r)
        shares = stays / stays.sum(dim=-1, keepdim=True).clamp(min=1) if prox.total else None
        by_H, by_X, backward, steps, kept = by_H + by_U, -by_U, M.mT, [], []
        for s in reversed(range(len(stays))):
            own = by_H * stays[s]
            kept.append(own)
            by_X = by_X + own
            if shares is not None:
                by_X = by_X - shares[s] * own.sum(dim=-1, keepdim=True)
            steps.append(by_X)
            by_X, by_H = (by_X @ backward).split(r, dim=-1)
        moves = torch.stack(steps[::-1])  # (s, b, n, r)
        by_M = (points[:-1].mT @ moves).sum(dim=0)  # (b, 2r, r)
        by_less = -sum(kept).sum(dim=(-2, -1), keepdim=True) if prox.l1 else None  # pyright: ignore
        by_P = 2 * by_M[:, r:] - by_M[:, :r]
        return moves.sum(dim=0), by_P, by_less, by_H, by_X, None, None


def _turns(P: Float[Tensor, "b r r"]) -> Float[Tensor, "b two_r r"]:
    """[I − P; 2P − I]."""
    identity = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    return torch.cat([identity - P, 2 * P - identity], dim=-2)


def half_step(
    normal: Normal, H: Tensor, U: Tensor, on: Penalties, n_inner: int
) -> tuple[Float[Tensor, "b n r"], Float[Tensor, "b n r"]]:
    """The new H and its dual."""
    prox, rho = Prox.of(on), weight_of(normal.WtW, 1.0)[:, None, None]
    identity = torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
    inverse = spd_inverse(normal.WtW + rho * identity)
    F, less = normal.VtW @ inverse, prox.l1 / rho
    return Steps.apply(F, rho * inverse, less, H, H - U, prox, n_inner)  # pyright: ignore


class StackedState(NamedTuple):
    """The point and the duals of its two half-steps."""

    factors: Factors
    duals: Factors


@dataclass(frozen=True)
class StackedProximal:
    """`solvers.proximal.ProximalADMM` under L1 and shares by rows, for a stack of dense V."""

    n_inner: int = 10

    def init(self, problem: Problem, x0: Factors) -> StackedState:
        sets = [on for on in (problem.on_w, problem.on_h) if Prox.of(on).total is not None]
        inside = Factors(problem.on_w.inside(x0.W), problem.on_h.inside(x0.H)) if sets else x0
        return StackedState(inside, Factors(*(torch.zeros_like(F) for F in x0)))

    def step(self, problem: Problem, state: StackedState) -> StackedState:
        V, (W, H), (U_W, U_H) = problem.V, *state
        H, U_H = half_step(V.normal(W), H, U_H, problem.on_h, self.n_inner)
        W, U_W = half_step(V.T.normal(H), W, U_W, problem.on_w, self.n_inner)
        return StackedState(Factors(W, H), Factors(U_W, U_H))

    def adopt(self, problem: Problem, state: StackedState, x: Factors) -> StackedState:
        return state._replace(factors=x)
