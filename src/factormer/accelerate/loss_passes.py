"""Other losses in few readings: one pass over V for each iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Blocks, readings
from factormer.data.factors import Factors
from factormer.data.parts import Parts
from factormer.data.spread import Spread
from factormer.problem.entrywise import EntryByEntry
from factormer.problem.loss import Loss
from factormer.problem.passes import Fit, fit, matrix_of
from factormer.problem.problem import Problem
from factormer.sentence import Sentence
from factormer.solvers.multiplicative import multiply, update
from factormer.solvers.newton import coded

_LIFT = 0.01  # of the mean of a component, the least value of an entry at the start


class LossPassesState(NamedTuple):
    """The best point that a pass was made at, what it found there, and the H of the next pass.

    `caution` counts the steps from there that raised the value: the next is bolder the fewer.
    """

    factors: Factors
    fit: Fit | None
    H: Float[Tensor, "n r"]
    newton: Float[Tensor, "n r"] | None = None  # the minimum of the model at the point
    before: Float[Tensor, "n r"] | None = None  # that of the point before it
    momentum: float = 0.0
    caution: int = 0

    def sq_error(self, problem: Problem) -> Float[Tensor, ""]:
        """Twice the value; that of a start takes a pass of its own."""
        return problem.sq_error(self.factors) if self.fit is None else 2 * self.fit.value


@dataclass(frozen=True)
class LossPasses:
    """An iteration reads V once: W is fitted to H block by block, and sums for H are formed.

    The sums are those of a quadratic model of the loss by H with its exact curvature, n·r² numbers.
    The next pass is made at the minimum of the model, extrapolated. If that raises the value, the
    next is made at the minimum itself, and if that does too at a multiplicative update, which never
    does: a descent method.
    """

    n_steps: int = 3  # Newton steps of the rows of W in a pass
    n_sweeps: int = 10  # of coordinate descent on the model
    momentum: float = 0.5
    faster: float = 1.1
    slower: float = 0.5

    def init(self, problem: Problem, x0: Factors) -> LossPassesState:
        if not problem.is_free or problem.is_quadratic or not isinstance(problem.V, Blocks):
            raise ValueError(
                Sentence(
                    "these passes serve other losses of data beyond memory, without penalties; use "
                    "{solver=auto}"
                )
            )
        V, (W, H) = problem.V, x0
        W = V.lifted(W, _LIFT) if isinstance(V, Spread) else lifted(W)
        H = lifted(H)
        return LossPassesState(Factors(W, H), None, H, momentum=self.momentum)

    def step(self, problem: Problem, state: LossPassesState) -> LossPassesState:
        V = problem.V
        assert isinstance(V, Blocks)
        found, curvature = self._pass(problem, Factors(state.factors.W, state.H))
        best, momentum = state.fit, state.momentum
        slack = 1 + 4 * torch.finfo(V.dtype).eps
        fell = best is None or bool(found.value <= slack * best.value)
        if best is not None and not fell and state.caution < 2:
            slow, plain = self.slower * momentum, state.caution == 0 and state.before is not None
            assert state.newton is not None
            H = state.newton if plain else multiply(best.x.H, *best.right, problem.loss.exponent)
            caution = 1 if plain else 2
            return state._replace(H=H, momentum=slow, caution=caution)
        newton = minimum(found.x.H, found.right[1] - found.right[0], curvature, self.n_sweeps)
        ahead, before = newton, state.newton
        if before is not None and state.caution == 0:
            ahead = (newton + momentum * (newton - before)).clamp(min=0)
            momentum = min(1.0, self.faster * momentum)
        elif before is not None:
            before = None
        return LossPassesState(found.x, found, ahead, newton, before, momentum)

    def adopt(self, problem: Problem, state: LossPassesState, x: Factors) -> LossPassesState:
        return self.init(problem, x)

    def _pass(self, problem: Problem, x: Factors) -> tuple[Fit, Float[Tensor, "n r r"]]:
        """All that is known at (W, H), with W fitted to H from that of x; the curvature by H."""
        V, r = problem.V, problem.rank
        assert isinstance(V, Blocks)
        part = Fitted(x.H, problem.loss, V.scale, self.n_steps)
        (W,), (value, up, down, curvature, slope) = V.sweep(part, x.W)
        found = Fit(Factors(W, x.H), value, (up, down), slope)
        V.keep_fit(found)
        return found, curvature.view(-1, r, r)


@dataclass(frozen=True, eq=False)
class Fitted:
    """W after a few steps for H; value and gradient by H there, its curvature, the slope by W."""

    H: Float[Tensor, "n r"]
    loss: Loss
    c: float
    n_steps: int

    makes: ClassVar = (1, 5)

    @torch.no_grad()
    @readings.counted()  # what is read again of a block is no pass
    def __call__(self, block: Any, W: Tensor) -> Parts:
        V = matrix_of(block, self.c)
        problem = Problem(V, W.shape[1], self.loss)
        W = fitted(problem, Factors(W, self.H), self.n_steps)
        x = Factors(W, self.H)
        found = fit(V, self.loss, x)
        bend = EntryByEntry(V, self.loss).curvature(x)
        return (W,), (found.value, *found.right, bend, found.slope)


def lifted(F: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    """F with entries of at least a share of the mean of their column."""
    return torch.maximum(F, _LIFT * F.mean(dim=0))


def fitted(problem: Problem, x: Factors, n_steps: int) -> Float[Tensor, "k r"]:
    """The rows of W after some steps that never raise the loss: Newton's, where there is a core."""
    (W, H), turned = x, problem.T
    if (found := coded(problem, x, n_steps)) is not None:
        return found.W
    for _ in range(4 * n_steps):
        W = update(turned, Factors(H, W))
    return W


def minimum(
    H: Float[Tensor, "n r"],
    gradient: Float[Tensor, "n r"],
    curvature: Float[Tensor, "n r r"],
    n_sweeps: int,
) -> Float[Tensor, "n r"]:
    """The minimum over X ≥ 0 of ⟨G, X − H⟩ + ½(X − H)ᵀ C (X − H), row by row, nearly."""
    diagonal = curvature.diagonal(dim1=1, dim2=2)
    floor = torch.finfo(H.dtype).eps * diagonal.amax(dim=1, keepdim=True)
    X, slope = H.clone(), gradient.clone()
    for _ in range(n_sweeps):
        for c in range(H.shape[1]):
            bend = diagonal[:, c]
            moved = (X[:, c] - slope[:, c] / torch.where(bend > 0, bend, 1.0)).clamp(min=0)
            flat = torch.where(slope[:, c] > 0, 0.0, X[:, c])  # as in an empty column of V
            change = torch.where(bend > floor[:, 0], moved, flat) - X[:, c]
            X[:, c] += change
            slope += curvature[:, :, c] * change[:, None]
    return X
