"""The bases of training by name: the problems of each, and the solver that is unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.multiplicative import Multiplicative
from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.counts import COUNTED, counted_bucket
from factormer_lab.train.anyrank.kullback import StackedNewton
from factormer_lab.train.anyrank.problems import (
    SYNTHETIC,
    Bucket,
    Shape,
    Source,
    draw_bucket,
)
from factormer_lab.train.anyrank.rollout import admm
from factormer_lab.train.anyrank.sweeps import swept


class Task(NamedTuple):
    """A base: the source of its problems, the function that draws them, and their solver.

    The solver depends on the number and the shape of a bucket; made without a shape, it serves
    every bucket.
    """

    source: Source
    draw: Callable[[Shape, int, torch.Generator, Source], Bucket]
    solver: Callable[[AnyRankTraining, int, Shape | None], Solver[Any]]


def _admm(config: AnyRankTraining, number: int, shape: Shape | None) -> Solver[Any]:
    return admm(config.n_inner_some if number % 3 == 2 else config.n_inner)


def _hals(config: AnyRankTraining, number: int, shape: Shape | None) -> Solver[Any]:
    return HALS() if shape is None else swept(*shape, compressed=number % 3 != 2)


TASKS = {
    "admm": Task(SYNTHETIC, draw_bucket, _admm),
    "hals": Task(SYNTHETIC, draw_bucket, _hals),
    "newton": Task(COUNTED, counted_bucket, lambda *_: StackedNewton()),
    "mu": Task(COUNTED, counted_bucket, lambda *_: Multiplicative(floor=1e-10)),
}
