"""Counts, spectrograms and text for training under Kullback–Leibler, and starts for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data import Dense
from factormer.data.factors import Factors, where
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.run.lifting import lifted
from factormer.solvers.loop import iterated
from factormer.solvers.multiplicative import Multiplicative
from factormer.starts import Random
from factormer_lab.train.anyrank.problems import Bucket, Shape, Source, factor, true_rank
from factormer_lab.train.anyrank.sweeps import SweptHALS

KULLBACK = Beta(1.0)
_DRAWN = ("exponential", "gamma", "lognormal", "sparse", "smooth", "uneven")  # means of counts
_ON_ROOTS, _ON_COUNTS = 15, 3  # iterations of a start like `run.lifting.Squared`


@dataclass(frozen=True)
class Counted:
    """Matrices whose errors grow with their entries: Poisson's, many or few, and magnitudes."""

    names: tuple[str, ...] = (
        *("many counts", "few counts", "text", "magnitudes", "notes", "exact"),
    )  # fmt: skip

    def fitting(self, shape: Shape) -> Shape:
        return shape

    def draw(self, shape: Shape, per_kind: int, rng: torch.Generator) -> Float[Tensor, "b m n"]:
        stacks = [_counted(name, per_kind, shape, rng) for name in self.names]
        return torch.cat(stacks).float()


COUNTED = Counted()


def counted_bucket(shape: Shape, per_kind: int, rng: torch.Generator, source: Source) -> Bucket:
    """Matrices with starts for Kullback–Leibler: random, or squares of a fit of the roots."""
    V = source.draw(shape, per_kind, rng)
    kinds = torch.arange(len(source.names), device=V.device).repeat_interleave(per_kind)
    order = torch.randperm(len(V), generator=rng, device=V.device)
    V, kinds = V[order].contiguous(), kinds[order]
    problem = Problem(Dense(V), shape[2], KULLBACK)
    from_roots = torch.rand(len(V), generator=rng, device=V.device) < 0.6
    x0 = where(from_roots, _rooted(problem, rng), _random(problem, rng))
    starts = torch.where(from_roots, 0, 1)  # places in problems.STARTS: fitted, random
    return Bucket(V, x0, shape[2], kinds, starts, loss=KULLBACK)


@torch.no_grad()
def _random(problem: Problem, rng: torch.Generator) -> Factors:
    return Factors(*(lifted(F) for F in Random()(problem.start(), rng)))


@torch.no_grad()
def _rooted(problem: Problem, rng: torch.Generator) -> Factors:
    assert isinstance(problem.V, Dense)
    roots = Problem(Dense(problem.V.entries.sqrt()), problem.rank)
    fitted = Restarted(SweptHALS(2, 2), Extrapolation())
    x = iterated(roots, fitted, Random()(roots, rng), _ON_ROOTS).factors
    x = Factors(*(lifted(F.square()) for F in x))
    return Factors(*(lifted(F) for F in iterated(problem, Multiplicative(), x, _ON_COUNTS).factors))


def _counted(name: str, b: int, shape: Shape, rng: torch.Generator) -> Float[Tensor, "b m n"]:
    if name == "text":
        V = _poisson(_zipf(_means(b, shape, rng, ("sparse", "gamma")), rng), 0.05, 0.6, rng)
    elif name == "notes":
        V = _notes(b, shape, rng)
    else:
        V = _means(b, shape, rng, _DRAWN)
        if name == "many counts":
            V = _poisson(V, 3.0, 100.0, rng)
        elif name == "few counts":
            V = _poisson(V, 0.3, 3.0, rng)
        elif name == "magnitudes":
            V = V * _ripple(V.shape, rng)
    return V / V.mean(dim=(1, 2), keepdim=True).clamp(min=1e-6)


def _means(
    b: int, shape: Shape, rng: torch.Generator, kinds: tuple[str, ...]
) -> Float[Tensor, "b m n"]:
    """Products of factors of random kinds, with more or fewer components than they will get."""
    (m, n, r), stacks = shape, []
    for size in (b - b // 2, b // 2):
        k = true_rank(r, rng)
        W, H = factor(_one(kinds, rng), size, m, k, rng), factor(_one(kinds, rng), size, n, k, rng)
        stacks.append(W @ H.mT)
    return torch.cat(stacks)


def _notes(b: int, shape: Shape, rng: torch.Generator) -> Float[Tensor, "b m n"]:
    """Harmonic spectra that are struck and decay, a little noise, magnitudes."""
    m, n, r = shape
    k = max(2, round(r * (0.7 + _uniform((), rng) * 1.3).item()))
    f = torch.arange(m, device=rng.device)[None, :, None]
    pitch, width = 2 + m / 8 * _uniform((b, 1, k), rng), 0.4 + 0.8 * _uniform((b, 1, k), rng)
    W = torch.zeros(b, m, k, device=rng.device)
    for h in range(1, 9):
        height = _uniform((b, 1, k), rng) / h
        W = W + height * torch.exp(-0.5 * ((f - h * pitch) / width).square())
    struck = (_uniform((b, n, k), rng) < 2.5 / n) * (0.2 + _uniform((b, n, k), rng))
    decay = 1 - 0.5 * _uniform((b, k), rng).square() - 0.02
    level, H = torch.zeros(b, k, device=rng.device), []
    for t in range(n):
        level = decay * level + struck[:, t]
        H.append(level)
    V = W @ torch.stack(H, dim=1).mT + 1e-4 + 1e-3 * _uniform((b, 1, 1), rng)
    return V * _ripple(V.shape, rng)


def _ripple(shape: torch.Size, rng: torch.Generator) -> Tensor:
    """Multiplicative noise of mean 1, of another size for each matrix."""
    size = 0.05 + 0.45 * _uniform((shape[0], 1, 1), rng)
    drawn = torch.randn(shape, generator=rng, device=rng.device)
    return (size * drawn - size.square() / 2).exp()


def _zipf(V: Float[Tensor, "b m n"], rng: torch.Generator) -> Float[Tensor, "b m n"]:
    """Columns as uneven as the words of a language."""
    n = V.shape[-1]
    falls = 1 / (3 + torch.arange(n, device=V.device))
    order = torch.randperm(n, generator=rng, device=V.device)
    return V * falls[order]


def _poisson(
    V: Float[Tensor, "b m n"], low: float, high: float, rng: torch.Generator
) -> Float[Tensor, "b m n"]:
    mean = torch.exp(math.log(low) + math.log(high / low) * _uniform((len(V), 1, 1), rng))
    drawn = torch.poisson(V / V.mean(dim=(1, 2), keepdim=True).clamp(min=1e-9) * mean, rng)
    empty = (drawn.sum(dim=(1, 2), keepdim=True) == 0).to(V.dtype)
    return drawn + empty


def _uniform(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=rng, device=rng.device)


def _one(names: tuple[str, ...], rng: torch.Generator) -> str:
    return names[int(torch.randint(len(names), (), generator=rng, device=rng.device))]
