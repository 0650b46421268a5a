"""The iteration that is trained on: the package's own loop, with gradients, and its loss."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Restarted, RestartedState
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data.factors import Factors
from factormer.nn.anyrank import AnyRankNetwork
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import TraceAOADMM
from factormer.solvers.base import Point, Solver
from factormer.solvers.loop import go_on, loop


class RecordedState(NamedTuple):
    """The solver's state, and ‖W Hᵀ − V‖² where its last step ended, taken or not."""

    inner: Any
    error: Float[Tensor, "*b"]

    @property
    def factors(self) -> Factors:
        return self.inner.factors

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖² at the end of the last step."""
        return self.error


@dataclass(frozen=True)
class Recorded:
    """A solver that computes its error anew: with gradients, and no look at its value.

    So that a step can be recorded as a CUDA graph, and a refused one can be learned from.
    """

    solver: Solver[Any]

    def init(self, problem: Problem, x0: Factors) -> RecordedState:
        return RecordedState(self.solver.init(problem, x0), _sq_error(problem, x0))

    def step(self, problem: Problem, state: RecordedState) -> RecordedState:
        inner = self.solver.step(problem, state.inner)
        inner = inner._replace(known=None) if isinstance(inner, Point) else inner
        return RecordedState(inner, _sq_error(problem, inner.factors))

    def adopt(self, problem: Problem, state: RecordedState, x: Factors) -> RecordedState:
        return state._replace(inner=self.solver.adopt(problem, state.inner, x))


def admm(n_inner: int) -> TraceAOADMM:
    """The batched engine's solver: AO-ADMM, which is products alone."""
    return TraceAOADMM(n_inner=n_inner, tol=0.0, share=0.1)


def classical(solver: Solver[Any]) -> Restarted:
    """The engine to beat."""
    return Restarted(Recorded(solver), Extrapolation())


def learned(model: AnyRankNetwork, solver: Solver[Any]) -> Restarted:
    """The engine with a network."""
    return Restarted(Recorded(solver), AnyRank(model))


def rms(problem: Problem, sq_error: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """The root mean square error of an entry, in float32; the mean of another objective."""
    *_, m, n = problem.V.shape
    mean = sq_error / (m * n) + 1e-20
    return mean.sqrt().float() if problem.is_plain else mean.float() / 2


class Outcome(NamedTuple):
    """The loss, the mean log excess relative to the reference, and the share of refusals."""

    loss: Float[Tensor, ""]
    gain: Float[Tensor, ""]
    refused: Float[Tensor, ""]


def unrolled_loss(
    solver: Restarted,
    problem: Problem,
    state: RestartedState,
    reference: Float[Tensor, "t b"],
    best: Float[Tensor, " b"],
    *,
    refusal: float,
    none: float = 1e-3,
) -> tuple[Outcome, RestartedState]:
    """The loss of as many iterations as there are reference errors, and the state after them.

    For each iteration, log of the excess over the best known error, relative to that of the
    classical engine at the same iteration, softly bounded; and for a refused proposal, how far the
    excess rose, so that it has a gradient although it was dropped. An excess of `none`, relative to
    the best, hardly counts.
    """
    losses, gains, refusals = [], [], []
    looks = islice(go_on(problem, solver, state, limit=len(reference)), 1, None)
    for target, look in zip(reference, looks, strict=True):
        before = _log_excess(rms(problem, state.error.detach()), best, none)
        state = look.state
        reached, aim = (_log_excess(e, best, none) for e in (rms(problem, state.error), target))
        gain = reached - aim
        tried = state.inner.error
        tried = torch.where(tried.isfinite(), tried, state.error)
        trial = _log_excess(rms(problem, tried), best, none)
        rise = torch.where(state.plain, trial - before, torch.zeros_like(before)).clamp(min=0)
        losses.append(4 * torch.tanh(gain / 4) + refusal * torch.log1p(2 * rise))
        gains.append(gain.detach().clamp(-6, 6))
        refusals.append(state.plain.float())
    parts = (torch.stack(values).mean() for values in (losses, gains, refusals))
    return Outcome(*parts), state


@torch.no_grad()
def trajectory(
    solver: Restarted, problem: Problem, x0: Factors, n_iter: int
) -> tuple[Float[Tensor, "t b"], Float[Tensor, "t b"]]:
    """The smallest error so far after each iteration, and whether that one was refused."""
    errors, refusals = [], []
    for look in islice(loop(problem, solver, x0, limit=n_iter), 1, None):
        errors.append(rms(problem, look.state.error))
        refusals.append(look.state.plain.float())
    return torch.stack(errors).cummin(dim=0).values, torch.stack(refusals)


def _log_excess(
    error: Float[Tensor, " b"], best: Float[Tensor, " b"], none: float
) -> Float[Tensor, " b"]:
    return ((error - best).clamp(min=0) + none * best + 1e-6).log()


def _sq_error(problem: Problem, x: Factors) -> Float[Tensor, "*b"]:
    if not problem.is_quadratic:
        return problem.sq_error(x)
    (_, entries), *_ = problem.V.blocks(None)
    return (x.W @ x.H.mT - entries).square().sum(dim=(-2, -1)).double()
