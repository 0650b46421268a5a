"""Matrices of every kind, rank and size, their principal coordinates, and errors to come near."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.anyfactormer import spread
from factormer.problem.problem import Problem
from factormer_lab.train.anyfactormer.config import AnyFactormerTraining
from factormer_lab.train.anyrank.problems import (
    KINDS,
    Shape,
    Synthetic,
    draw_bucket,
    draw_shape,
    leading_svd,
)
from factormer_lab.train.anyrank.rollout import classical, trajectory
from factormer_lab.train.anyrank.sweeps import SweptHALS, swept

_SEED = 104_729
_SIDES = (50, 128)  # of matrices with relative noise


@dataclass(frozen=True)
class Relative:
    """Products of exponential factors of the rank asked for, each entry 10 % off."""

    names: tuple[str, ...] = ("relative",)

    def fitting(self, shape: Shape) -> Shape:
        return shape

    def draw(self, shape: Shape, per_kind: int, rng: torch.Generator) -> Float[Tensor, "b m n"]:
        m, n, r = shape
        W, H = (
            torch.empty(per_kind, size, r, device=rng.device).exponential_(generator=rng)
            for size in (m, n)
        )
        noise = torch.randn(per_kind, m, n, generator=rng, device=rng.device)
        V = W @ H.mT * (1 + 0.1 * noise).clamp(min=0)
        return V / V.square().mean(dim=(1, 2), keepdim=True).sqrt()


class Entry(NamedTuple):
    """Matrices of one shape, what the network sees of them, and the best errors known."""

    V: Float[Tensor, "b m n"]
    x: Factors  # [U√S, Z√S]
    best: Float[Tensor, " b"]
    solver: SweptHALS

    def some(self, index: Tensor) -> Entry:
        """Some of them."""
        x = Factors(self.x.W[index], self.x.H[index])
        return self._replace(V=self.V[index], x=x, best=self.best[index])

    @property
    def problem(self) -> Problem:
        """As a stack."""
        return Problem(Dense(self.V), self.x.W.shape[-1])


def make_pool(
    config: AnyFactormerTraining,
    device: torch.device,
    report: Callable[[dict[str, Any]], None] = lambda event: None,
) -> list[Entry]:
    """Draw the problems of a run and solve them classically; the same for the same config."""
    rng = torch.Generator(device).manual_seed(_SEED + 1_000_003 * config.seed)
    pool = []
    for number in range(config.n_buckets):
        shape = draw_shape(number // 2, (2, config.max_rank), config.max_size, rng)
        if number % 2:
            m, n = (int(k) for k in torch.randint(*_SIDES, (2,), generator=rng, device=device))
            shape = (m, n, min(shape[2], m // 2, n // 2))
            count, source = config.per_kind * len(KINDS), Relative()
        else:
            count, source = config.per_kind, Synthetic()
        pool.append(entry(shape, count, rng, source, config.n_reference))
        report({"event": "data", "text": f"{number + 1} of {config.n_buckets} shapes"})
    return pool


def entry(
    shape: Shape, per_kind: int, rng: torch.Generator, source: Any, n_reference: int
) -> Entry:
    """Matrices of a shape, solved from starts of several kinds."""
    bucket, solver = draw_bucket(shape, per_kind, rng, source), swept(*shape, compressed=False)
    problem = bucket.problem(slice(None))
    errors, _ = trajectory(classical(solver), problem, bucket.x0, n_reference)
    U, S, Z = leading_svd(bucket.V, shape[2], rng)
    root = S.sqrt()[:, None]
    x = Factors((U * root).float().nan_to_num(), (Z * root).float().nan_to_num())
    return Entry(bucket.V, x, errors[-1].clone(), solver)


def rotations(x: Factors, rng: torch.Generator) -> Float[Tensor, "b r r"]:
    """Random rotations to begin at."""
    r = x.W.shape[-1]
    chance = torch.randn(len(x.W), r, r, generator=rng, device=x.W.device)
    return spread(x, torch.linalg.qr(chance).Q)
