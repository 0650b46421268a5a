"""The synthetic matrices of sec. 7.1 and app. C: V = W Hᵀ + N, exponential factors, mean 1."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.starts import NNDSVD


@dataclass(frozen=True)
class SizeClass:
    """`count` matrices whose numbers of rows and columns are uniform in closed ranges."""

    count: int
    rows: tuple[int, int]
    cols: tuple[int, int]


TRAINING = (  # the table of app. C
    SizeClass(10_000, (10, 35), (10, 35)),
    SizeClass(2_000, (30, 70), (30, 70)),
    SizeClass(1_500, (30, 100), (10, 35)),
    SizeClass(1_500, (10, 35), (30, 100)),
)
UP_TO_100 = SizeClass(2_000, (30, 100), (30, 100))  # in the range of the text, not in the table
VALIDATION = {  # sec. 7.1, free of noise
    "small": SizeClass(128, (15, 35), (15, 35)),
    "large": SizeClass(128, (50, 200), (50, 200)),
}


Noise = float | tuple[float, float]
_PIECE = 500  # matrices drawn at once


class Stack(NamedTuple):
    """Problems of mixed size padded with zeros to one shape, each with its start."""

    problem: Problem
    x0: Factors

    def __len__(self) -> int:
        return self.problem.V.shape[0]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Stack:
        """Return the problems on another device."""
        V = self.problem.V
        assert isinstance(V, Dense)
        rows, cols = (None if mask is None else mask.to(device) for mask in (V.rows, V.cols))
        problem = Problem(Dense(V.entries.to(device, dtype), rows, cols), self.problem.rank)
        return Stack(problem, Factors(*(F.to(device, dtype) for F in self.x0)))

    def select(self, index: Int[Tensor, " k"], *, crop: bool) -> Stack:
        """Some of the problems; with `crop`, padded no further than the largest of them needs."""
        V = self.problem.V
        assert isinstance(V, Dense)
        assert V.rows is not None
        assert V.cols is not None
        rows, cols = V.rows[index], V.cols[index]
        m = int(rows.sum(-1).max()) if crop else rows.shape[-1]
        n = int(cols.sum(-1).max()) if crop else cols.shape[-1]
        entries = V.entries[index, :m, :n]
        x0 = Factors(self.x0.W[index, :m], self.x0.H[index, :n])
        return Stack(Problem(Dense(entries, rows[:, :m], cols[:, :n]), self.problem.rank), x0)


def sample(size: SizeClass, rank: int, sigma: Noise, rng: torch.Generator) -> Dense:
    """Draw a class of matrices, padded with zeros to its largest shape.

    λ = 1/√r is the mean of the exponential factors, so that E[V] = r·λ² = 1 (18). Noise can make
    an entry negative: it is clipped at zero. A pair of numbers as `sigma` gives each matrix its
    own noise, log-uniform between them.
    """
    k, m, n = size.count, size.rows[1], size.cols[1]
    rows = _leading(torch.randint(size.rows[0], m + 1, (k, 1), generator=rng), m)
    cols = _leading(torch.randint(size.cols[0], n + 1, (k, 1), generator=rng), n)
    scale = rank**-0.5
    W, H = (scale * torch.empty(k, s, rank).exponential_(generator=rng) for s in (m, n))
    low, high = sigma if isinstance(sigma, tuple) else (sigma, sigma)
    noise = low * (high / (low or 1)) ** torch.rand(k, 1, 1, generator=rng) if high > low else low
    V = W @ H.mT + noise * torch.randn(k, m, n, generator=rng)
    return Dense(V.clamp(min=0) * rows[:, :, None] * cols[:, None, :], rows, cols)


def _leading(sizes: Int[Tensor, "k 1"], longest: int) -> Tensor:
    return torch.arange(longest) < sizes  # (k, longest)


def stack(size: SizeClass, rank: int, sigma: Noise, *, seed: int) -> Stack:
    """Draw a class of matrices, each with its NNDSVD start, in pieces on as many threads as cores.

    Each piece has its own seed and is drawn on the CPU: the same matrices on every machine.
    """
    counts = [min(_PIECE, size.count - start) for start in range(0, size.count, _PIECE)]
    seeds = np.random.SeedSequence(seed).generate_state(len(counts))
    draw = partial(_piece, size, rank, sigma)
    with ThreadPoolExecutor(initializer=torch.set_num_threads, initargs=(1,)) as pool:
        pieces = list(pool.map(draw, counts, seeds.tolist()))
    names = ("entries", "rows", "cols")
    entries, rows, cols = (torch.cat([getattr(V, name) for V, _ in pieces]) for name in names)
    x0 = Factors(*(torch.cat(parts) for parts in zip(*(x for _, x in pieces), strict=True)))
    return Stack(Problem(Dense(entries, rows, cols), rank), x0)


def _piece(
    size: SizeClass, rank: int, sigma: Noise, count: int, seed: int
) -> tuple[Dense, Factors]:
    rng = torch.Generator().manual_seed(seed)
    V = sample(SizeClass(count, size.rows, size.cols), rank, sigma, rng)
    return V, NNDSVD()(Problem(V, rank), rng)


def training_set(
    rank: int, sigma: Noise, copies: int, *, seed: int, up_to_100: bool = False
) -> list[Stack]:
    """The 15 000 training matrices of app. C, or a multiple of them; and `UP_TO_100`, if asked."""
    table = (*TRAINING, UP_TO_100) if up_to_100 else TRAINING
    classes = [SizeClass(copies * c.count, c.rows, c.cols) for c in table]
    return [stack(c, rank, sigma, seed=len(classes) * seed + k) for k, c in enumerate(classes)]


def validation_set(name: str, rank: int = 10) -> Stack:
    """One of the two fixed validation sets of 128 matrices, in float64."""
    return _validation_set(VALIDATION[name], sorted(VALIDATION).index(name) + 20_220, rank)


@lru_cache(maxsize=4)
def _validation_set(size: SizeClass, seed: int, rank: int) -> Stack:
    rng = torch.Generator().manual_seed(seed)
    V = sample(size, rank, 0.0, rng)
    problem = Problem(Dense(V.entries.double(), V.rows, V.cols), rank)
    return Stack(problem, NNDSVD()(problem, rng))
