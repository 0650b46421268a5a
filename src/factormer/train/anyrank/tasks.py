"""What is solved in training, and by which solver: a base by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.penalties import L1, Penalties, Simplex
from factormer.problem.problem import Problem
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.multiplicative import Multiplicative
from factormer.solvers.proximal import ProximalADMM
from factormer.starts import Vertices
from factormer.train.anyrank.config import AnyRankTraining
from factormer.train.anyrank.counts import COUNTED, counted_bucket
from factormer.train.anyrank.kullback import StackedNewton
from factormer.train.anyrank.problems import STARTS, SYNTHETIC, Bucket, Shape, Source, draw_bucket
from factormer.train.anyrank.rollout import admm
from factormer.train.anyrank.sweeps import swept

_WEIGHTS = (0.003, 0.1)  # of L1, in units of VᵀW: the least and the most


class Task(NamedTuple):
    """Where problems of a base come from, how they are drawn, and what solves them.

    The solver depends on the number and the shape of a bucket; without a shape it serves them all.
    """

    source: Source
    draw: Callable[[Shape, int, torch.Generator, Source], Bucket]
    solver: Callable[[AnyRankTraining, int, Shape | None], Solver[Any]]


def _admm(config: AnyRankTraining, number: int, shape: Shape | None) -> Solver[Any]:
    return admm(config.n_inner_some if number % 3 == 2 else config.n_inner)


def _hals(config: AnyRankTraining, number: int, shape: Shape | None) -> Solver[Any]:
    return HALS() if shape is None else swept(*shape, compressed=number % 3 != 2)


def _sparse_bucket(shape: Shape, per_kind: int, rng: torch.Generator, source: Source) -> Bucket:
    """With L1 on both factors, of another weight in each bucket."""
    bucket, (low, high) = draw_bucket(shape, per_kind, rng, source), _WEIGHTS
    (m, n, r), u = shape, float(torch.rand((), generator=rng, device=rng.device))
    weight = low * (high / low) ** u * (m * n) ** 0.5 / r**0.5
    on = Penalties.of(L1(weight))
    return replace(bucket, on_w=on, on_h=on)


def _shares_bucket(shape: Shape, per_kind: int, rng: torch.Generator, source: Source) -> Bucket:
    """With rows of W that sum to one, in every second matrix exactly so but for noise.

    Rows that sum to one are shares of columns of H that do, and scaled columns make those uneven.
    Every second start is the one that shares have by default, corners among the rows.
    """
    drawn = draw_bucket(shape, per_kind, rng, source)
    on = Penalties.of(Simplex())
    V, starts, r = drawn.V.clone(), drawn.starts.clone(), drawn.rank
    x0 = Factors(*(F.clone() for F in drawn.x0))
    for b in range(len(V)):
        u, other = torch.rand(2, generator=rng, device=rng.device).tolist()
        if u < 0.5:
            scale = torch.randn(V.shape[-1], generator=rng, device=rng.device).mul(0.5).exp()
            V[b] = V[b] / V[b].sum(dim=1, keepdim=True).clamp(min=1e-6) * scale
            V[b] = V[b] / V[b].square().mean().sqrt()
        if other < 0.5:
            problem = Problem(Dense(V[b].double()), r, on_w=on)
            for F, found in zip(x0, Vertices("rows", 1.0)(problem, rng), strict=True):
                F[b] = found
            starts[b] = STARTS.index("vertices")
    return replace(drawn, V=V, x0=x0, starts=starts, on_w=on)


TASKS = {
    "admm": Task(SYNTHETIC, draw_bucket, _admm),
    "hals": Task(SYNTHETIC, draw_bucket, _hals),
    "newton": Task(COUNTED, counted_bucket, lambda *_: StackedNewton()),
    "mu": Task(COUNTED, counted_bucket, lambda *_: Multiplicative(floor=1e-10)),
    "l1": Task(SYNTHETIC, _sparse_bucket, lambda *_: ProximalADMM()),
    "simplex": Task(SYNTHETIC, _shares_bucket, lambda *_: ProximalADMM()),
}
