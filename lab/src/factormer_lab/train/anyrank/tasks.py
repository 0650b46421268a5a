"""What is solved in training, and by which solver: a base by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from factormer.data.factors import where
from factormer.problem.penalties import L1, Penalties, Simplex
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.multiplicative import Multiplicative
from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.corners import cornered
from factormer_lab.train.anyrank.counts import COUNTED, counted_bucket
from factormer_lab.train.anyrank.kullback import StackedNewton
from factormer_lab.train.anyrank.problems import (
    STARTS,
    SYNTHETIC,
    Bucket,
    Shape,
    Source,
    draw_bucket,
)
from factormer_lab.train.anyrank.proximal import StackedProximal
from factormer_lab.train.anyrank.rollout import admm
from factormer_lab.train.anyrank.sweeps import swept

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
    drawn, on = draw_bucket(shape, per_kind, rng, source), Penalties.of(Simplex())
    V, b = drawn.V, len(drawn.V)
    are_shares, from_corners = torch.rand(2, b, generator=rng, device=rng.device) < 0.5
    scale = torch.randn(b, 1, V.shape[-1], generator=rng, device=rng.device).mul(0.5).exp()
    even = V / V.sum(dim=2, keepdim=True).clamp(min=1e-6) * scale
    even = even / even.square().mean(dim=(1, 2), keepdim=True).sqrt()
    V = torch.where(are_shares[:, None, None], even, V)
    x = cornered(V, shape[2], on, rng)
    sound = torch.stack([F.isfinite().flatten(1).all(dim=1) for F in x]).all(dim=0)
    x0 = where(from_corners & sound, x, drawn.x0)
    starts = torch.where(from_corners & sound, STARTS.index("vertices"), drawn.starts)
    return replace(drawn, V=V, x0=x0, starts=starts, on_w=on)


TASKS = {
    "admm": Task(SYNTHETIC, draw_bucket, _admm),
    "hals": Task(SYNTHETIC, draw_bucket, _hals),
    "newton": Task(COUNTED, counted_bucket, lambda *_: StackedNewton()),
    "mu": Task(COUNTED, counted_bucket, lambda *_: Multiplicative(floor=1e-10)),
    "l1": Task(SYNTHETIC, _sparse_bucket, lambda *_: StackedProximal()),
    "simplex": Task(SYNTHETIC, _shares_bucket, lambda *_: StackedProximal()),
}
