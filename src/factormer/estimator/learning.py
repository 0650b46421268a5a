"""How components follow one batch of rows after another, and when that ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Blocks, Dense, Sparse
from factormer.data.base import inner
from factormer.data.factors import Factors
from factormer.data.intake import check_mean
from factormer.data.parts import Parts
from factormer.estimator.options import Asked
from factormer.estimator.streaming import check_squares
from factormer.functions import starting_point
from factormer.problem.loss import Loss
from factormer.problem.problem import Problem
from factormer.run.choose import choose
from factormer.run.execute import execute
from factormer.run.request import Request
from factormer.run.result import Status
from factormer.run.settle import coefficients
from factormer.solvers.online import Majorizer, Statistics

_FEW = 5  # iterations for W from where it was, for losses other than the squared error
_FLOOR = 1e-3  # of the mean of a component, to which majorizers, that keep zeros, lift a start


class Learning(NamedTuple):
    """The components (n, r), and what is kept of the rows so far."""

    H: Float[Tensor, "n r"]
    past: Statistics | Majorizer

    def at(self, H: Float[Tensor, "n r"]) -> Learning:
        """Return the past with other components."""
        return Learning(H.to(self.H.device), self.past)


class Learner(NamedTuple):
    """One batch: W is found for the components, and the components for all batches so far."""

    loss: Loss
    asked: Asked
    fresh: bool
    n_fresh: int

    def begun(self, H: Float[Tensor, "n r"]) -> Learning:
        """Components without a past."""
        wide = H.double()
        if self.loss.is_quadratic:
            r = H.shape[1]
            past = Statistics(torch.zeros_like(wide), wide.new_zeros(r, r), 0)
            return Learning(H, past)
        lifted = torch.maximum(H, _FLOOR * H.mean(dim=0))
        return Learning(lifted, Majorizer.empty(wide))

    def fitted(self, V: Dense | Sparse, rank: int, init: Any, seed: int) -> Learning:
        """The components of one batch; random ones if it has too few rows."""
        if V.shape[0] < rank:
            _, H = starting_point(V, rank, init="random", random_state=seed)
            return self.begun(torch.as_tensor(H))
        request = Request.of(
            V,
            rank,
            loss=self.loss,
            init=init,
            regularize_W=self.asked.on_W(V.shape[1]).terms,
            regularize_H=self.asked.on_H(V.shape[0]).terms,
            random_state=seed,
        )
        (result,) = execute(choose(request))
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return self.begun(result.factors.H)

    def step(
        self,
        state: Learning,
        V: Dense | Sparse,
        kept: float,
        *,
        warm: Tensor | None = None,
        replaced: tuple[Tensor, float] | None = None,
    ) -> tuple[Learning, Float[Tensor, "k r"], float]:
        """The components after a batch, its W, and its loss, with its part of W's penalty, a row.

        The past keeps the weight `kept`. `warm` is the W that these rows had; with `replaced` the
        same, and the weight that it still has in the past, from which it is taken away.
        """
        start = None if self.fresh or warm is None or not bool(warm.any()) else warm
        W, new, misfit, penalty = self.met(V, state.H, start)
        past = _added(state.past, new, kept)
        if replaced is not None:
            before, weight = replaced
            VtW, WtW = V.to(torch.float64).normal(before.double())
            old = Statistics(VtW, WtW, V.shape[0])
            past = _less(past, old, weight) if isinstance(past, Statistics) else past
        return self.followed(state.H, past), W, (misfit + penalty) / V.shape[0]

    def met(
        self, V: Dense | Sparse, H: Float[Tensor, "n r"], start: Tensor | None = None
    ) -> tuple[Float[Tensor, "k r"], Statistics | Majorizer, float, float]:
        """W of a batch, what it adds to the past, its loss, and W's penalty."""
        on_w, limit = self.asked.on_W(V.shape[1]), self.n_fresh if start is None else _FEW
        W = coefficients(V, H, self.loss, on_w, start, at_most=limit).W
        wide, x = V.to(torch.float64), Factors(W.double(), H.double())
        if self.loss.is_quadratic:
            new, misfit = _by_squares(wide, x)
        else:
            problem = Problem(wide, H.shape[1], self.loss)
            new, misfit = Majorizer.empty(x.H).after(problem, x, 0), float(problem.misfit.value(x))
        return W, new, misfit, float(on_w.value(x.W))

    def followed(self, H: Float[Tensor, "n r"], past: Statistics | Majorizer) -> Learning:
        """The components that are best for a past."""
        on_h, wide = self.asked.on_H(past.n_rows), H.double()
        if isinstance(past, Statistics):
            return Learning(past.update(wide, on_h).to(H.dtype), past)
        return Learning(past.update(wide, on_h, self.loss.exponent).to(H.dtype), past)

    def coded(self, V: Dense | Sparse, H: Tensor, limit: int) -> Float[Tensor, "m r"]:
        """The best W for known components."""
        on_w = self.asked.on_W(V.shape[1])
        return coefficients(V, H, self.loss, on_w, at_most=limit).W


@dataclass(frozen=True, eq=False)
class Found:
    """A task: the sums that a chunk of rows adds to the past of given components, where it lies.

    W is found for the chunk and forgotten: only sums travel.
    """

    learner: Learner
    H: Float[Tensor, "n r"]

    makes: ClassVar = (0, 3)  # tensors by rows, and those that are summed

    def __call__(self, block: Any) -> Parts:
        n, r = self.H.shape
        if not block.shape[0]:
            k = r if self.learner.loss.is_quadratic else n
            sizes = ((n, r), (k, r), (2,))
            return (), tuple(torch.zeros(size, dtype=torch.float64) for size in sizes)
        V = Sparse.of(block) if scipy.sparse.issparse(block) else Dense(block)
        _, new, *costs = self.learner.met(V, self.H)
        return (), (new.A, new.B, torch.tensor(costs, dtype=torch.float64))


def visited(V: Blocks, learner: Learner, state: Learning) -> tuple[Learning, float, float]:
    """The components after a visit of all chunks, each where it is; loss and penalty before it.

    H goes out, and only sums of n·r numbers come back.
    """
    _, (A, B, costs) = V.sweep(Found(learner, state.H))
    misfit, penalty = costs.tolist()
    return learner.followed(state.H, type(state.past)(A, B, V.shape[0])), misfit, penalty


def _added(
    past: Statistics | Majorizer, new: Statistics | Majorizer, kept: float
) -> Statistics | Majorizer:
    """The past, with the weight `kept`, and a batch."""
    A, B = kept * past.A + new.A, kept * past.B + new.B
    return type(past)(A, B, kept * past.n_rows + new.n_rows)


def _less(past: Statistics, old: Statistics, weight: float) -> Statistics:
    """The past without what it still has of a batch; rounding leads to no negative number."""
    A, B = past.A - weight * old.A, past.B - weight * old.B
    return Statistics(A.clamp(min=0), B.clamp(min=0), max(past.n_rows - weight * old.n_rows, 0.0))


def _by_squares(V: Any, x: Factors) -> tuple[Statistics, float]:
    """The statistics of a batch, and half its squared error."""
    mean = (V.total() / (V.shape[0] * V.shape[1])).double()
    if mean:
        check_mean(mean, reach=0.5)  # the error is of the size of X squared
    VtW, WtW = V.normal(x.W)
    new = Statistics(VtW, WtW, V.shape[0])
    check_squares(new, mean)
    cost = float(V.sq_norm()) - 2 * float(inner(new.A, x.H)) + float(inner(new.B, x.H.mT @ x.H))
    return new, max(cost / 2, 0.0)


class Watch:
    """When to stop: components that stay where they are, or a loss that has ceased to fall."""

    def __init__(self, tol: float | int, patience: int | None, n_rows: int) -> None:
        self._tol, self._patience, self._n_rows = tol, patience, n_rows
        self._mean: float | None = None
        self._least, self._without = float("inf"), 0

    def is_still(self, before: Tensor, H: Tensor) -> bool:
        """Whether a visit of all data has changed the components by less than the tolerance."""
        return self._tol > 0 and bool((H - before).norm() <= self._tol * H.norm())

    def no_gain(self, cost: float, n_rows: int, visit: int) -> bool:
        """Whether the moving average has not fallen for too many batches, after one visit."""
        share = min(n_rows / (self._n_rows + 1), 1.0)
        self._mean = cost if self._mean is None else (1 - share) * self._mean + share * cost
        if not visit:
            return False
        self._without = 0 if self._mean < self._least else self._without + 1
        self._least = min(self._least, self._mean)
        return self._patience is not None and self._without >= self._patience
