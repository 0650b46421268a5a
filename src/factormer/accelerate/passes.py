"""Few readings: one pass over V for each iteration, and all else on what the passes have found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.accelerate.her import HER
from factormer.data import Blocks, Matrix, Normal, Seen, enriched
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.base import Solver
from factormer.solvers.hals import hals_nnls
from factormer.solvers.loop import loop


class PassesState(NamedTuple):
    """The best point of which all products are known, and where the next pass begins.

    `seen` is None before the first pass. `plain` says that the next pass begins at a plain update
    of H, from which the error cannot rise.
    """

    factors: Factors
    error: Float[Tensor, ""]
    seen: Seen | None
    ahead: Factors
    plain: Bool[Tensor, ""]

    def sq_error(self, problem: Problem) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖² at the point; that of a start takes a pass of its own."""
        return problem.sq_error(self.factors) if self.seen is None else self.error


@dataclass(frozen=True)
class Passes:
    """An iteration reads V once: W is updated for H block by block, and VᵀW formed from it.

    What comes between two passes happens on V̂, a matrix of low rank that has the same products
    with W and H as V, and with all that its sketch spans (`enriched`). Near (W, H) it equals V up
    to terms of second order, so a pass for the minimum on V̂ is nearly a Newton step. If the error
    rises, the best point stays, and the next pass begins at a plain update of its H, which cannot
    raise the error: a descent method.
    """

    ahead: Solver[Any] = field(default_factory=HER)
    n_sweeps: int = 10
    n_ahead: int = 100
    at_once: int = 10
    share: float = 0.03  # of the projected gradient, at which iterations ahead end

    def init(self, problem: Problem, x0: Factors) -> PassesState:
        if not problem.is_plain or len(problem.V.shape) > 2:
            raise ValueError(
                "solver='passes' serves the plain squared error of one matrix; use solver='auto' "
                "for other losses, penalties and stacks"
            )
        error = torch.tensor(torch.inf, dtype=torch.float64, device=problem.V.device)
        return PassesState(x0, error, None, x0, torch.ones_like(error, dtype=torch.bool))

    def step(self, problem: Problem, state: PassesState) -> PassesState:
        seen = one_pass(problem.V, state.ahead, self.n_sweeps)
        error = seen.sq_error
        if state.seen is not None and not bool(error <= state.error) and not bool(state.plain):
            plain = self._plain(problem, state.seen)
            return state._replace(ahead=plain, plain=torch.ones_like(state.plain))
        ahead = self._ahead(problem, seen)
        return PassesState(seen.x, error, seen, ahead, torch.zeros_like(state.plain))

    def adopt(self, problem: Problem, state: PassesState, x: Factors) -> PassesState:
        return self.init(problem, x)

    def _plain(self, problem: Problem, seen: Seen) -> Factors:
        """The point with H updated from its known products."""
        W, H = seen.x
        sweeps = torch.tensor(self.n_sweeps)
        return Factors(W, hals_nnls(Normal(seen.VtW, W.mT @ W), H, n_sweeps=sweeps))

    def _ahead(self, problem: Problem, seen: Seen) -> Factors:
        """The minimum on V̂, from the point on, as far as iterations there gain something."""
        V = problem.V
        sketch = V.known_sketch if isinstance(V, Blocks) else None
        known = Problem(enriched(V, sketch, seen.x.W, seen.VtW, seen.x.H, seen.VH), problem.rank)
        looks = loop(known, self.ahead, seen.x, limit=self.n_ahead, at_most=self.at_once)
        look, begun = next(looks), known.stationarity(seen.x)
        for look in looks:
            if look.t % self.at_once == 0:
                size = known.stationarity(look.factors)
                if bool(size <= self.share * begun):
                    break
        return look.factors


def one_pass(V: Matrix, x: Factors, n_sweeps: int) -> Seen:
    """All products at (W, H), W being that of x after some sweeps for its H."""
    (W, H), sweeps = x, torch.tensor(n_sweeps)
    HtH = H.mT @ H

    def update(rows: slice, VH: Float[Tensor, "k r"]) -> Float[Tensor, "k r"]:
        return hals_nnls(Normal(VH, HtH), W[rows], n_sweeps=sweeps)

    if isinstance(V, Blocks):
        return V.updated(H, update)
    VH = V @ H
    x = Factors(update(slice(None), VH), H)
    error = Problem(V, H.shape[1]).sq_error(x, Normal(VH, HtH))
    return Seen(x, VH, V.normal(x.W).VtW, error)
