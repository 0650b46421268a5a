"""What is solved in training, and by which solver: a base by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from factormer.problem.penalties import L1, Penalties, Simplex
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.multiplicative import Multiplicative
from factormer.solvers.proximal import ProximalADMM
from factormer.train.anyrank.config import AnyRankTraining
from factormer.train.anyrank.counts import COUNTED, counted_bucket
from factormer.train.anyrank.kullback import StackedNewton
from factormer.train.anyrank.problems import SYNTHETIC, Bucket, Shape, Source, draw_bucket
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
    """With rows of W that sum to one."""
    bucket = draw_bucket(shape, per_kind, rng, source)
    return replace(bucket, on_w=Penalties.of(Simplex()))


TASKS = {
    "admm": Task(SYNTHETIC, draw_bucket, _admm),
    "hals": Task(SYNTHETIC, draw_bucket, _hals),
    "newton": Task(COUNTED, counted_bucket, lambda *_: StackedNewton()),
    "mu": Task(COUNTED, counted_bucket, lambda *_: Multiplicative(floor=1e-10)),
    "l1": Task(SYNTHETIC, _sparse_bucket, lambda *_: ProximalADMM()),
    "simplex": Task(SYNTHETIC, _shares_bucket, lambda *_: ProximalADMM()),
}
