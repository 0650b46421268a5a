"""Starts for other losses and for known columns, adapted from those of least squares."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.her import HER
from factormer.data import Dense, sketch
from factormer.data.factors import Factors, where
from factormer.data.svd import OVERSAMPLING
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.run.multistart import Tournament
from factormer.solvers.coding import Coder
from factormer.solvers.loop import iterated
from factormer.solvers.multiplicative import Multiplicative
from factormer.starts import Given, Initializer, Random, Rotated


@dataclass(frozen=True)
class Lifted:
    """A start of least squares after a few iterations, without zeros: losses may have poles."""

    base: Initializer
    n_iter: int = 5
    share: float = 0.01  # of the mean of a component, the least value of an entry
    solver: HER = field(default_factory=HER)

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        x = self.base(problem, rng)
        if self.n_iter:
            x = iterated(problem, self.solver, x, self.n_iter).factors
        return Factors(*(lifted(F, self.share) for F in x))


@dataclass(frozen=True)
class Squared:
    """A start for counts, from one for their roots.

    If V has counts, errors of √V have one size everywhere, so least squares weigh them correctly.
    """

    base: Initializer

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        assert isinstance(problem.V, Dense)
        x = self.base(Problem(Dense(problem.V.entries.sqrt()), problem.rank), rng)
        return Factors(*(lifted(F.square()) for F in x))


@dataclass(frozen=True)
class Rooted:
    """A start for counts in a large matrix: several fits of √V on a sketch, the best of them on √V.

    Its square is in the right place but too small, as a sum of squares is less than the square of
    the sum; a few multiplicative updates mend that. In float32, since it is only a start. Least
    squares iterate many times faster than Newton steps, and end near better optima than those that
    steps from a random start find (docs/log.md).
    """

    on_sketch: int = 60
    on_roots: int = 20
    on_counts: int = 3
    solver: HER = field(default_factory=HER)

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        if not isinstance(problem.V, Dense):  # as most of it is zero
            return Lifted(Random(), n_iter=0)(problem, rng)
        V, r = problem.V.to(torch.float32), problem.rank
        roots = Problem(Dense(V.entries.sqrt()), r)
        if r + OVERSAMPLING <= min(V.shape):
            small = Problem(sketch(roots.V, r + OVERSAMPLING, rng), r)
            x, *others = Rotated().candidates(small, rng)
            fitted = iterated(small, Tournament(self.solver, tuple(others)), x, self.on_sketch)
            x = Factors(*(F.to(V.dtype) for F in fitted.factors))
        else:
            x = Rotated()(roots, rng)
        x = iterated(roots, self.solver, x, self.on_roots).factors
        x = Factors(*(lifted(F.square()) for F in x))
        x = iterated(Problem(V, r, Beta(1.0)), Multiplicative(), x, self.on_counts).factors
        return Factors(*(lifted(F).to(problem.V.dtype) for F in x))


def lifted(F: Float[Tensor, "*b m r"], share: float = 0.01) -> Float[Tensor, "*b m r"]:
    """F without zeros: entries of at least that share of the mean of their column."""
    F = torch.maximum(F, share * F.mean(dim=-2, keepdim=True))
    return F + torch.finfo(F.dtype).eps * (F == 0)


@dataclass(frozen=True)
class Beside:
    """Another start with the known columns in their places, and the other factor fitted to them.

    A given start, and one where both factors have known columns, only gets its known columns.
    """

    base: Initializer

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        on_w, on_h, plain = problem.on_w, problem.on_h, problem.start()
        given = isinstance(self.base, Given)
        if not given and on_h.fixed is None and on_w.fixed is not None:
            return self(problem.T, rng).swap()
        if given or on_h.fixed is None or on_w.fixed is not None:
            x = problem.taken(self.base(plain, rng))
            if isinstance(self.base, Given) and not problem.is_free:
                asis = problem.taken(self.base.x0)  # penalties may need another scale than V
                x = where(problem.objective(asis) <= problem.objective(x), asis, x)
            return x
        free = ~on_h.fixed.at.to(plain.V.device)
        H = torch.zeros(plain.V.shape[-1], problem.rank, dtype=plain.V.dtype, device=plain.V.device)
        if bool(free.any()):
            H[:, free] = self.base(Problem(plain.V, int(free.sum())), rng).H
        H = on_h.placed(H)
        W = Coder.of(H)(plain.V)
        if problem.loss.is_quadratic:
            return Factors(W, H)
        size = H.abs().amax(dim=0)
        size = torch.where(size > 0, size, 1.0)
        return Factors(lifted(W * size) / size, H)


@dataclass(frozen=True)
class Tied:
    """Another start, for V ≈ H Hᵀ: the mean of its two factors."""

    base: Initializer

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        W, H = self.base(problem, rng)
        return Factors((W + H) / 2, (W + H) / 2)
