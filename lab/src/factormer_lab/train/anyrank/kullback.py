"""Newton steps under Kullback–Leibler for training: a stack of matrices, with gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.base import Point
from factormer_lab.train.anyrank.sweeps import Sweeps

_HALVINGS = 12


@dataclass(frozen=True)
class StackedNewton:
    """`solvers.newton.Newton` without penalties, one step a half-step, for a stack.

    How far to go along a step is chosen without a gradient. A component without curvature stays
    where it is, where the compiled steps let it fall to zero.
    """

    n_sweeps: int = 4
    near: float = 1e-5

    def init(self, problem: Problem, x0: Factors) -> Point:
        return Point(x0)

    def step(self, problem: Problem, state: Point) -> Point:
        assert isinstance(problem.V, Dense)
        V, (W, H) = problem.V.entries, state.factors
        H = self.half_step(V, W, H)
        return Point(Factors(self.half_step(V.mT, H, W), H))

    def adopt(self, problem: Problem, state: Point, x: Factors) -> Point:
        return Point(x)

    def half_step(
        self, V: Float[Tensor, "b m n"], W: Float[Tensor, "b m r"], H: Float[Tensor, "b n r"]
    ) -> Float[Tensor, "b n r"]:
        """The new H."""
        B, X, (b, n, r) = W.clamp(min=0), H.clamp(min=0), H.shape
        tiny = 1e4 * torch.finfo(V.dtype).tiny
        linear = B.sum(dim=-2, keepdim=True)  # (b, 1, r)
        fit = B @ X.mT  # (b, m, n)
        inverse = 1 / torch.maximum(fit, self.near * V).clamp(min=tiny)
        pull = V * inverse
        g = linear - pull.mT @ B  # (b, n, r)
        pairs = (B[..., :, None] * B[..., None, :]).flatten(2)  # (b, m, r²)
        G = ((pull * inverse).mT @ pairs).view(b, n, r, r)
        F = (G @ X[..., None]).squeeze(-1) - g
        rows = (A.reshape(b * n, *A.shape[2:]) for A in (G, F[:, :, None], X[:, :, None]))
        step = Sweeps.apply(*rows, self.n_sweeps).view(b, n, r) - X
        t = _how_far(V, fit, B, step, linear, tiny)
        return (X + t[..., None] * step).clamp(min=0)


@torch.no_grad()
def _how_far(
    V: Float[Tensor, "b m n"],
    fit: Float[Tensor, "b m n"],
    B: Float[Tensor, "b m r"],
    step: Float[Tensor, "b n r"],
    linear: Float[Tensor, "b 1 r"],
    tiny: float,
) -> Float[Tensor, "b n"]:
    """For each row, the share of its step that descends: slopes as in `solvers.newton`."""
    way, fixed = B @ step.mT, (step * linear).sum(dim=-1)

    def slope(t: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        return fixed - (way * V / (fit + t[:, None] * way).clamp(min=tiny)).sum(dim=-2)

    t = torch.ones_like(fixed)
    end = slope(t)
    for _ in range(_HALVINGS):
        rising = end > 0
        if V.device.type == "cpu" and not rising.any():  # a look that a recorded update cannot take
            return t
        middle = slope(t / 2)
        falls = middle + end <= 0
        t = torch.where(rising & ~falls, t / 2, t)
        end = torch.where(rising & falls, torch.zeros_like(end), torch.where(rising, middle, end))
    return torch.where(end > 0, torch.zeros_like(t), t)
