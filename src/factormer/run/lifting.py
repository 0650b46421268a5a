"""Starts for other losses and for known columns, adapted from those of least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.her import HER
from factormer.data import Dense, Matrix, Sparse
from factormer.data.factors import Factors, where
from factormer.kernels.rules import SHARE
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.run.core import Made, Recipe
from factormer.run.solve import solve
from factormer.run.stop import Pace
from factormer.run.thresholds import SPARSE_FITS
from factormer.solvers.coding import Coder
from factormer.solvers.loop import iterated
from factormer.solvers.multiplicative import Multiplicative
from factormer.starts import Given, Initializer, Random, Rotated


@dataclass(frozen=True)
class Lifted:
    """A start of least squares after a few iterations, without zeros: losses may have poles."""

    base: Initializer
    n_iter: int = 5
    share: float = SHARE
    solver: HER = field(default_factory=HER)

    def recipe(self, V: Matrix) -> Recipe | None:
        """Return how the core makes this start: if it begins with random numbers."""
        return Recipe(fits=self.n_iter) if type(self.base) is Random else None

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        x = self.base(problem, rng)
        if self.n_iter:
            x = iterated(problem, self.solver, x, self.n_iter).factors
        return Factors(*(lifted(F, self.share) for F in x))


@dataclass(frozen=True)
class Squared:
    """A start for counts: one for their roots, after iterations of least squares on them.

    If V has counts, errors of √V have one size everywhere, so least squares weigh them correctly;
    they iterate some thirty times faster than Newton steps, and end near better optima than those
    that steps from a random start find. With a `base` and `others`, the best fit of √V is taken. In
    float32 in the core, since it is only a start.
    """

    base: Initializer
    on_roots: int = 20
    on_counts: int = 0
    others: tuple[Random, ...] = ()
    tol: float = 5e-4  # of the fits of √V, as of any run
    solver: HER = field(default_factory=HER)

    def recipe(self, V: Matrix) -> Recipe | None:
        """Return how the core makes this start: if it begins with random numbers or is rotated.

        Of sparse data, with one random start: fits of √V say little there.
        """
        draws = {Random: "random", Rotated: "rotated"}.get(type(self.base))
        recipe = Recipe(draws or "", 1 + len(self.others), self.on_roots, self.on_counts, True)
        if draws == "rotated" and not isinstance(V, Dense):
            recipe = recipe._replace(draws="random", starts=1, fits=SPARSE_FITS)
        return None if draws is None else recipe

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        roots = Problem(rooted(problem.V), problem.rank)
        fits = [
            solve(roots, self.solver, base(roots, rng), stop=Pace(self.tol), max_iter=self.on_roots)
            for base in (self.base, *self.others)
        ]
        best = min(fits, key=lambda fit: float(fit.error))
        return squared(problem.V, best.factors, self.on_counts)


def squared(V: Matrix, x: Factors, n_iter: int) -> Factors:
    """A start for V from a fit of √V, after a few multiplicative updates.

    The square is in the right place but too small, as a sum of squares is less than the square of
    the sum; the updates mend that at less cost than Newton steps.
    """
    x = Factors(*(lifted(F.square()) for F in x))
    if not n_iter:
        return x
    counts = Problem(V, x.W.shape[-1], Beta(1.0))
    return Factors(*(lifted(F) for F in iterated(counts, Multiplicative(), x, n_iter).factors))


def rooted(V: Matrix) -> Matrix:
    """√V, entry by entry."""
    if isinstance(V, Dense):
        return Dense(V.entries.sqrt())
    assert isinstance(V, Sparse)
    values = V.by_rows.values.sqrt()
    return Sparse(replace(V.by_rows, values=values), math.sqrt(V.scale))


def lifted(F: Float[Tensor, "*b m r"], share: float = SHARE) -> Float[Tensor, "*b m r"]:
    """F without zeros: entries of at least that share of the mean of their column."""
    F = torch.maximum(F, share * F.mean(dim=-2, keepdim=True))
    return F + torch.finfo(F.dtype).eps * (F == 0)


@dataclass(frozen=True)
class Beside:
    """Another start with the known columns in their places, and the other factor fitted to them.

    A given start, and one where both factors have known columns, only gets its known columns.
    """

    base: Initializer

    def recipe(self, V: Matrix) -> Recipe | None:
        """Return how the core makes the other start."""
        return self.base.recipe(V) if isinstance(self.base, Made) else None

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
