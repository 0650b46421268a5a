"""Problems of every kind, rank and size, with the errors of the classical engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.base import Solver
from factormer.solvers.loop import iterated
from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.problems import Bucket, Source, draw_shape
from factormer_lab.train.anyrank.rollout import classical, trajectory
from factormer_lab.train.anyrank.tasks import TASKS

_SEED = 7_919  # of the pool of run 0; far from the seeds that evaluation uses


@dataclass(frozen=True)
class Entry:
    """A bucket, its solver, and the classical engine's error after each iteration and at last."""

    bucket: Bucket
    reference: Float[Tensor, "t b"]
    best: Float[Tensor, " b"]
    solver: Solver[Any]


def make_pool(
    config: AnyRankTraining,
    device: torch.device,
    report: Callable[[dict[str, Any]], None] = lambda event: None,
    source: Source | None = None,
) -> list[Entry]:
    """Draw the problems of a run and solve them classically; the same for the same config.

    From the source, or from that of each base.
    """
    rng = torch.Generator(device).manual_seed(_SEED + 1_000_003 * config.seed)
    pool, ranks = [], (config.min_rank, config.max_rank)
    for number in range(config.n_buckets):
        task = TASKS[_base(config, rng)]
        drawn = source or task.source
        shape = drawn.fitting(draw_shape(number, ranks, config.max_size, rng))
        bucket = task.draw(shape, config.per_kind, rng, drawn)
        solver = task.solver(config, number, shape)
        problem, x0 = bucket.problem(slice(None)), bucket.x0
        if n_before := config.n_before * (number % 3) // 2:
            x0 = _later(classical(solver), problem, x0, n_before)
            bucket = replace(bucket, x0=x0)
        errors, _ = trajectory(classical(solver), problem, x0, config.n_reference)
        kept = errors[: config.horizon * config.n_iter].clone()
        pool.append(Entry(bucket, kept, errors[-1].clone(), solver))
        report({"event": "data", "text": f"{number + 1} of {config.n_buckets} shapes"})
    return pool


def _base(config: AnyRankTraining, rng: torch.Generator) -> str:
    """The base of the next bucket."""
    if len(config.bases) == 1:
        return config.base
    return config.bases[int(torch.randint(len(config.bases), (), generator=rng, device=rng.device))]


@torch.no_grad()
def _later(engine: Solver[Any], problem: Problem, x0: Factors, n_iter: int) -> Factors:
    """Return the point of the engine after so many iterations: late there is early from here."""
    return Factors(*(F.clone() for F in iterated(problem, engine, x0, n_iter).factors))
