"""Few readings: one pass over V for each iteration, and all else on what the passes have found."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.accelerate.her import HER
from factormer.data import Blocks, Matrix, Normal, Seen, enriched
from factormer.data.factors import Factors
from factormer.data.spread import Spread
from factormer.problem.penalties import Near, Penalties
from factormer.problem.problem import Problem
from factormer.sentence import Sentence
from factormer.solvers.base import Solver
from factormer.solvers.hals import hals_nnls
from factormer.solvers.loop import loop

_FROM_ZERO = 30  # sweeps that find W without a start
_MORE = 3  # times as many sweeps, and iterations ahead at least, where these leave W as it was

# Change of a column between passes, relative to it, from which products with it have digits.
_CHANGE = {torch.float32: 1e-4, torch.float64: 1e-9}


class PassesState(NamedTuple):
    """The best point of which all products are known, and where the next pass begins.

    `seen` is None before the first pass. `ahead` is None where the next pass begins ahead of the
    point: iterations there are made when it begins, so that a run that ends makes none in vain.
    `plain` says that it begins at a plain update of H, from which the error cannot rise. At most
    `n_ahead` iterations are made ahead, 0 being the least number of them.
    """

    factors: Factors
    error: Float[Tensor, ""]
    seen: Seen | None
    ahead: Factors | None
    plain: Bool[Tensor, ""]
    earlier: tuple[Seen, ...] = ()
    n_ahead: int = 0

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

    At first up to `n_ahead` iterations are made on V̂. Where all of them were made and the pass
    found most of what they had predicted, it was their number that ended them, not V̂: twice as many
    are made the next time. Their sum stays what it was, and the passes grow with its logarithm.
    """

    ahead: Solver[Any] = field(default_factory=HER)
    n_sweeps: int = 10
    n_ahead: int = 200
    kept: float = 0.5  # of the fall that was predicted, from which there may be more ahead
    worth: float = 100.0  # passes, by their arithmetic alone, that iterations ahead may cost
    at_once: int = 10
    n_earlier: int = 1
    share: float = 0.05  # of the projected gradient, at which iterations ahead end
    anchor: float = 0.003  # of the curvature by H, that holds it where a sample of rows is iterated

    def init(self, problem: Problem, x0: Factors) -> PassesState:
        if not problem.is_plain or len(problem.V.shape) > 2:
            raise ValueError(
                Sentence(
                    "{solver=passes} serves the plain squared error of one matrix; use "
                    "{solver=auto} for other losses, penalties and stacks"
                )
            )
        error = torch.tensor(torch.inf, dtype=torch.float64, device=problem.V.device)
        return PassesState(x0, error, None, x0, torch.ones_like(error, dtype=torch.bool))

    def step(self, problem: Problem, state: PassesState) -> PassesState:
        ahead, limit, promised = state.ahead, max(state.n_ahead, self.n_ahead), None
        if ahead is None:
            assert state.seen is not None
            ahead, promised = self._ahead(problem, state.seen, state.earlier, limit)
        more = _MORE if isinstance(problem.V, Spread) else 1
        seen = one_pass(problem.V, ahead, more * self.n_sweeps)
        error, slack = seen.sq_error, 1 + 4 * torch.finfo(problem.V.dtype).eps
        fell = (error <= slack * state.error) | state.plain
        if state.seen is not None and not bool(fell):
            plain = self._plain(problem, state.seen)
            return state._replace(ahead=plain, plain=torch.ones_like(state.plain), n_ahead=0)
        earlier = () if state.seen is None else (state.seen, *state.earlier)[: self.n_earlier]
        if isinstance(problem.V, Spread):  # which looks at its own last pass alone
            earlier = ()
        if promised is not None and bool(
            state.error - error > self.kept * (state.error - promised).clamp(min=0)
        ):
            limit *= 2
        plain = torch.zeros_like(state.plain)
        return PassesState(seen.x, error, seen, None, plain, earlier, limit)

    def adopt(self, problem: Problem, state: PassesState, x: Factors) -> PassesState:
        return self.init(problem, x)

    def _plain(self, problem: Problem, seen: Seen) -> Factors:
        """The point with H updated from its known products."""
        W, H = seen.x
        sweeps = torch.tensor(self.n_sweeps)
        return Factors(W, hals_nnls(Normal(seen.VtW, seen.WtW), H, n_sweeps=sweeps))

    def _ahead(
        self, problem: Problem, seen: Seen, earlier: tuple[Seen, ...], at_most: int
    ) -> tuple[Factors, Float[Tensor, ""] | None]:
        """The minimum on V̂, from the point on, as far as iterations there gain something.

        And the error that they predict, if their number is what ended them.
        """
        V, r = problem.V, problem.rank
        if isinstance(V, Spread):
            known, x = sampled(V, seen, self.anchor)
        else:
            sketch = V.known_sketch if isinstance(V, Blocks) else None
            known, x = Problem(enriched(V, sketch, *along((seen, *earlier))), r), seen.x
        limit = min(self._limit(problem, known), at_most)
        looks = loop(known, self.ahead, x, limit=limit, at_most=self.at_once)
        look, begun = next(looks), None
        for look in looks:
            if look.t % self.at_once == 0 and look.t < limit:
                begun = known.stationarity(x) if begun is None else begun
                if bool(known.stationarity(look.factors) <= self.share * begun):
                    break
        if isinstance(V, Spread):  # a sample predicts no error of all rows
            return Factors(seen.x.W, look.factors.H), None
        return look.factors, look.errors[-1] if look.t == at_most else None

    def _limit(self, problem: Problem, known: Problem) -> int:
        """How many iterations on V̂ may be made: what counts are readings, but not at any price."""
        (m, n), r = problem.V.shape, problem.rank
        iteration = 2 * float(known.V.work()) + self.n_sweeps * r * sum(known.V.shape)
        several = self.worth * 2 * m * n / iteration
        more = _MORE if isinstance(problem.V, Spread) else 1
        return max(int(several), more * self.at_once)


def sampled(V: Spread, seen: Seen, anchor: float) -> tuple[Problem, Factors]:
    """V̂ on the rows of a sample, corrected by what all rows say of H, and the point there.

    Rows of W are functions of H, so the error is a function of H alone, a sum over rows. That of
    the sample has nearly the same curvature, and a linear term gives it the same gradient at the
    point: a fixed point of passes over all rows is one here too. Since W and H may trade their
    scale, which that term would reward, a quadratic one holds H near where it is.
    """
    view, x = V.view(seen)
    VtW, WtW = view.normal(x.W)
    excess = (x.H @ seen.WtW - seen.VtW) - (x.H @ WtW - VtW)
    weight = anchor * float(seen.WtW.diagonal().mean())
    target = x.H - excess / max(weight, torch.finfo(x.H.dtype).tiny)
    return Problem(view, x.H.shape[1], on_h=Penalties((Near(target, weight),))), x


def whole(V: Matrix, x: Factors) -> Factors:
    """The point with all rows of W, where x has those of the sample alone."""
    if not isinstance(V, Spread) or len(x.W) == V.shape[0]:
        return x
    return Factors(V.from_sketch(x.H, Sweeps(x.H.mT @ x.H, _FROM_ZERO)), x.H)


@dataclass(frozen=True, eq=False)
class Sweeps:
    """The update of some rows of W: HALS sweeps for known (VH, HᵀH)."""

    HtH: Float[Tensor, "r r"]
    n_sweeps: int

    @torch.no_grad()
    def __call__(self, VH: Float[Tensor, "k r"], W: Float[Tensor, "k r"]) -> Float[Tensor, "k r"]:
        return hals_nnls(Normal(VH, self.HtH), W, n_sweeps=torch.tensor(self.n_sweeps))


def along(seen: tuple[Seen, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W, VᵀW, H and VH of the last pass, and beside them the changes since earlier passes."""
    last, *earlier = seen
    parts = [[last.x.W, last.VtW], [last.x.H, last.VH]]
    for after, before in pairwise((last, *earlier)):
        for pair, new, old in (
            (parts[0], (after.x.W, after.VtW), (before.x.W, before.VtW)),
            (parts[1], (after.x.H, after.VH), (before.x.H, before.VH)),
        ):
            change, product = new[0] - old[0], new[1] - old[1]
            large = change.norm(dim=0) > _CHANGE[change.dtype] * new[0].norm(dim=0)
            pair[0] = torch.cat([pair[0], change[:, large]], 1)
            pair[1] = torch.cat([pair[1], product[:, large]], 1)
    (W, VtW), (H, VH) = parts
    return W, VtW, H, VH


def one_pass(V: Matrix, x: Factors, n_sweeps: int) -> Seen:
    """All products at (W, H), W being that of x after some sweeps for its H."""
    H = x.H
    update = Sweeps(H.mT @ H, n_sweeps)
    if isinstance(V, Blocks):
        return V.updated(x, update)
    VH = V @ H
    x = Factors(update(VH, x.W), H)
    error = Problem(V, H.shape[1]).sq_error(x, Normal(VH, update.HtH))
    return Seen(x, VH, V.normal(x.W).VtW, error)
