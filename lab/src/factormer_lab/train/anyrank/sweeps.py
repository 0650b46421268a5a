"""HALS for training: sweeps over a stack of matrices, with a gradient of their own.

Left to automatic differentiation, each component of each sweep would copy the factor. Here a sweep
works in place and remembers only where it ended; the gradient walks back from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.data import Dense, LowRank
from factormer.data.factors import Factors
from factormer.data.svd import OVERSAMPLING
from factormer.problem.problem import Problem
from factormer.solvers.base import Point
from factormer.solvers.hals import FLAT, HALS
from factormer_lab.train.anyrank import backward


class Sweeps(torch.autograd.Function):
    """Some sweeps of H_c ← (F_c − Σ_{k≠c} H_k G_kc)₊ / G_cc, from the nonnegative part of H.

    The twin is `solvers.hals.sweep`.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        G: Float[Tensor, "b r r"],
        F: Float[Tensor, "b n r"],
        H: Float[Tensor, "b n r"],
        n_sweeps: int,
    ) -> Float[Tensor, "b n r"]:
        inverse = _inverse(G)
        points = _on(H).sweeps(G, inverse, F, H.clamp(min=0), n_sweeps)
        ctx.save_for_backward(G, inverse, H, points)
        return points[-1]

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Float[Tensor, "b n r"]
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        G, inverse, H, points = ctx.saved_tensors
        by_G, by_F, by_H = _on(H).gradients(G, inverse, points, gradient)
        return by_G, by_F, by_H * (H > 0), None


def sweeps(
    G: Float[Tensor, "b r r"],
    inverse: Float[Tensor, "b r"],
    F: Float[Tensor, "b n r"],
    H: Float[Tensor, "b n r"],
    n_sweeps: int,
) -> Float[Tensor, "s b n r"]:
    """H ≥ 0 and where each sweep from there ends."""
    points = [H]
    for _ in range(n_sweeps):
        x = points[-1].clone()
        for c in range(G.shape[-1]):
            descent = F[..., c] - (x @ G[..., c, None]).squeeze(-1)
            x[..., c].add_(descent * inverse[..., c, None]).clamp_(min=0)
        points.append(x)
    return torch.stack(points)


def gradients(
    G: Float[Tensor, "b r r"],
    inverse: Float[Tensor, "b r"],
    points: Float[Tensor, "s b n r"],
    gradient: Float[Tensor, "b n r"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by G, by F, and by the point that the sweeps began at."""
    by_G, by_F, by_H = torch.zeros_like(G), torch.zeros_like(gradient), gradient.clone()
    for x, before in zip(points[1:].clone().flip(0), points[:-1].flip(0), strict=True):
        for c in reversed(range(G.shape[-1])):  # x is the point just after H_c was set
            own = by_H[..., c] * (x[..., c] > 0)
            scaled = own * inverse[..., c, None]  # by F_c
            stays = inverse[..., c, None] == 0  # no curvature: H_c was left as it was
            by_F[..., c] += scaled
            by_G[..., c] -= (scaled[..., None, :] @ x).squeeze(-2)
            by_H[..., c] = torch.where(stays, own, 0 * own)
            others = scaled[..., None] * G[..., None, :, c]
            others[..., c] = 0
            by_H -= others
            x[..., c] = before[..., c]
    return by_G, by_F, by_H


def _on(H: Tensor) -> Any:
    """Return the sweeps of a stack: in one kernel on a GPU, compiled on a CPU."""
    if not H.is_cuda:
        return Rows(kernels.compiled("sweeps", kernels.real(H.dtype)), backward)
    from factormer_lab.train.anyrank import fused

    return fused


class Rows(NamedTuple):
    """Sweep by compiled loops, matrix by matrix; the twins are `sweeps` and `gradients`."""

    forth: Any
    back: Any

    def sweeps(
        self, G: Tensor, inverse: Tensor, F: Tensor, H: Tensor, n_sweeps: int
    ) -> Float[Tensor, "s b n r"]:
        """H ≥ 0 and where each sweep from there ends."""
        b, n, r = H.shape
        points, Ft = torch.empty(n_sweeps + 1, b, r, n, dtype=H.dtype), F.mT.contiguous()
        points[0] = H.mT
        kernel = self.forth.sweeps(kernels.real(H.dtype))
        for i in range(b):
            scratch = self.forth.Scratch.of(self.forth.scaled(G[i].numpy(), FLAT[G.dtype]))
            for s in range(n_sweeps):
                arrays = (part.numpy() for part in (Ft[i], points[s, i], points[s + 1, i]))
                kernel(*arrays, 1, 0, n, *scratch)
        return points.mT

    def gradients(
        self, G: Tensor, inverse: Tensor, points: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients by G, by F, and by the point that the sweeps began at."""
        by_G, by = torch.zeros_like(G), gradient.mT.clone(memory_format=torch.contiguous_format)
        by_F, scaled = torch.zeros_like(by), torch.empty_like(by)
        kernel, points = self.back.back(kernels.real(G.dtype)), points.mT
        for before, after in zip(points[:-1].flip(0), points[1:].flip(0), strict=True):
            for arrays in zip(G, inverse, after, by, scaled, strict=True):
                kernel(*(part.contiguous().numpy() for part in arrays))
            by_F += scaled
            # a component sees those before it as they are after the sweep, later ones as before it
            by_G -= torch.triu(after @ scaled.mT) + torch.tril(before @ scaled.mT, diagonal=-1)
        return by_G, by_F.mT, by.mT


def _inverse(G: Float[Tensor, "b r r"]) -> Float[Tensor, "b r"]:
    """1 / G_cc, and 0 for components without curvature, which are left as they are."""
    diagonal = G.diagonal(dim1=-2, dim2=-1)
    curved = diagonal > FLAT[G.dtype] * diagonal.amax(dim=-1, keepdim=True)
    return torch.where(curved, 1 / torch.where(curved, diagonal, torch.ones_like(diagonal)), 0.0)


@dataclass(frozen=True)
class SweptHALS:
    """HALS with given numbers of sweeps in its half-steps, for a stack of matrices."""

    sweeps_h: int
    sweeps_w: int

    def init(self, problem: Problem, x0: Factors) -> Point:
        return Point(x0)

    def step(self, problem: Problem, state: Point) -> Point:
        V, (W, H) = problem.V, state.factors
        VtW, WtW = V.normal(W)
        H = Sweeps.apply(WtW, VtW, H, self.sweeps_h)
        VH, HtH = known = V.T.normal(H)
        return Point(Factors(Sweeps.apply(HtH, VH, W, self.sweeps_w), H), known)

    def adopt(self, problem: Problem, state: Point, x: Factors) -> Point:
        return Point(x)


def swept(m: int, n: int, r: int, *, compressed: bool) -> SweptHALS:
    """HALS with the sweeps that the engine makes on an m × n matrix, or on a sketch of it."""
    p = r + OVERSAMPLING
    U, Z = torch.zeros(m, p), torch.zeros(n, p)
    V = LowRank(U, Z, torch.zeros(())) if compressed else Dense(torch.zeros(m, n))
    return SweptHALS(*(int(HALS().n_sweeps(A, r)) for A in (V, V.T)))
