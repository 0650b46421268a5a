"""HALS for least squares with L1 and L2 penalties: both are changes of the normal equations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Normal
from factormer.data.factors import Factors
from factormer.problem.objective import Objective
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.solvers.hals import FLAT, HALS, hals_nnls


class ElasticState(NamedTuple):
    """The point, and (VH, HᵀH) of it where the last step knew them."""

    factors: Factors
    known: Normal | None = None

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """Twice the objective."""
        on_w, on_h, plain = _parts(problem)
        x = self.factors
        extra = on_w.value(x.W).double() + on_h.value(x.H).double()
        return plain.sq_error(x, self.known) + 2 * extra


@dataclass(frozen=True)
class ElasticHALS:
    """Accelerated HALS on VᵀW − λ₁ and WᵀW + λ₂ I, known columns left out. A descent method."""

    hals: HALS = field(default_factory=HALS)

    def init(self, problem: Problem, x0: Factors) -> ElasticState:
        _parts(problem)
        return ElasticState(x0)

    def step(self, problem: Problem, state: ElasticState) -> ElasticState:
        on_w, on_h, _ = _parts(problem)
        V, (W, H), r = problem.V, state.factors, problem.rank
        H = hals_nnls(penalised(V.normal(W), on_h), H, n_sweeps=self.hals.n_sweeps(V, r))
        known = V.T.normal(H)
        W = hals_nnls(penalised(known, on_w), W, n_sweeps=self.hals.n_sweeps(V.T, r))
        return ElasticState(Factors(W, H), known)

    def adopt(self, problem: Problem, state: ElasticState, x: Factors) -> ElasticState:
        return ElasticState(x)


def penalised(normal: Normal, on: Penalties) -> Normal:
    """The normal equations with both penalties in them.

    A column of H that is fixed gets no curvature, and so is left as it is. One whose column of W
    is zero is only a penalty to lower, and gets some.
    """
    (VtW, WtW), (l1, l2) = normal, on.elastic or (0.0, 0.0)
    before = WtW.diagonal(dim1=-2, dim2=-1)
    after = before + l2
    if l1:
        largest = after.amax(dim=-1, keepdim=True)
        flat = after <= FLAT[after.dtype] * largest
        after = torch.where(flat, torch.where(largest > 0, largest, 1.0), after)
    if on.fixed is not None:
        after = torch.where(on.fixed.at.to(after.device), 0.0, after)
    return Normal(VtW - l1, WtW + torch.diag_embed(after - before))


def _parts(problem: Problem) -> tuple[Penalties, Penalties, Problem]:
    if not isinstance(problem, Objective):
        return Penalties(), Penalties(), problem
    if problem.divergence.beta != 2 or None in (problem.on_w.elastic, problem.on_h.elastic):
        raise ValueError(
            "solver='hals' takes the squared error, with penalties L1 and L2 alone; leave "
            "solver='auto' for other losses and penalties"
        )
    return problem.on_w, problem.on_h, Problem(problem.V, problem.rank)
