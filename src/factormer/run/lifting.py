"""Starts for other losses and for known columns, adapted from those of least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.accelerate.her import HER
from factormer.data import Dense, Matrix, Sparse, sketch
from factormer.data.factors import Factors, where
from factormer.data.svd import OVERSAMPLING
from factormer.kernels.rules import SHARE
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.run.core import Fit, fits_from
from factormer.run.multistart import at_once
from factormer.run.solve import solve
from factormer.run.stop import Pace, StopRule, TimeBudget, any_of
from factormer.solvers.coding import Coder
from factormer.solvers.loop import iterated
from factormer.solvers.multiplicative import Multiplicative
from factormer.starts import NNDSVD, Given, Initializer, Random, Rotated


@dataclass(frozen=True)
class Lifted:
    """A start of least squares after a few iterations, without zeros: losses may have poles."""

    base: Initializer
    n_iter: int = 5
    share: float = SHARE
    solver: HER = field(default_factory=HER)

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        x = self.base(problem, rng)
        if self.n_iter:
            x = iterated(problem, self.solver, x, self.n_iter).factors
        return Factors(*(lifted(F, self.share) for F in x))


@dataclass(frozen=True)
class Squared:
    """A start for counts: one for their roots, after iterations of least squares on them.

    If V has counts, errors of √V have one size everywhere, so least squares weigh them correctly.
    """

    base: Initializer
    on_roots: int = 20
    on_counts: int = 0
    solver: HER = field(default_factory=HER)

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        roots = Problem(rooted(problem.V), problem.rank)
        x = iterated(roots, self.solver, self.base(roots, rng), self.on_roots).factors
        return squared(problem.V, x, self.on_counts)


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


@dataclass(frozen=True)
class Rooted:
    """A start for counts in a large matrix: several fits of √V side by side, and the best for V.

    The two that fit √V best are squared and mended, and the divergence decides between them. In
    float32, since it is only a start. Least squares iterate some thirty times faster than Newton
    steps, and end near better optima than those that steps from a random start find. They take all
    of √V: a sketch, narrow as it is, leads elsewhere; and early errors do not tell which fit will
    be the best (lab/log).
    """

    on_roots: int = 80
    on_counts: int = 3
    n_rotated: int = 2
    n_best: int = 2
    tol: float = 5e-4  # of the fits of √V, as of any run
    until: float | None = None  # the reading of `time.perf_counter()` at which they end
    solver: HER = field(default_factory=HER)

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        if not isinstance(problem.V, Dense):  # as most of it is zero
            return Squared(Random(), on_counts=self.on_counts)(problem, rng)
        V, r = problem.V.to(torch.float32), problem.rank
        roots, counts = Problem(rooted(V), r), Problem(V, r, Beta(1.0))
        starts = self._starts(roots, rng)
        fits = sorted(self._fits(roots, starts), key=lambda fit: fit.error)

        def mended(fit: Fit) -> tuple[float, Factors]:
            x = squared(V, fit.factors, self.on_counts)
            return float(counts.objective(x)), x

        _, best = min(at_once(mended, counts, fits[: self.n_best]), key=lambda found: found[0])
        return Factors(*(F.to(problem.V.dtype) for F in best))

    def _fits(self, roots: Problem, starts: list[Factors]) -> list[Fit]:
        """Fits of √V from each start: by the core side by side, or by the reference in turn."""
        fits = fits_from(roots.V, starts, self.on_roots, self.tol, self.until)
        if fits is not None:
            return fits
        ends: list[StopRule] = [Pace(self.tol)]
        if self.until is not None:
            ends.append(TimeBudget(0.0, since=self.until))
        found = (
            solve(roots, self.solver, x, stop=any_of(*ends), max_iter=self.on_roots) for x in starts
        )
        return [Fit(result.factors, float(result.error)) for result in found]

    def _starts(self, roots: Problem, rng: torch.Generator) -> list[Factors]:
        """Starts of several kinds, since none is the best everywhere."""
        r, small = roots.rank, roots
        if r + OVERSAMPLING <= min(roots.V.shape):  # which has the leading singular vectors
            small = replace(roots, V=sketch(roots.V, r + OVERSAMPLING, rng))
        rotated = Rotated().candidates(small, rng)[: self.n_rotated]
        starts = [*rotated, NNDSVD(fill=1.0)(small, rng), Random()(roots, rng)]
        return [roots.taken(x) for x in starts]


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


def in_time(start: Initializer, until: float) -> Initializer:
    """Return a start that ends about then, if it is one of those that take long."""
    if isinstance(start, Beside) and isinstance(start.base, Rooted):
        return replace(start, base=replace(start.base, until=until))
    return start


@dataclass(frozen=True)
class Tied:
    """Another start, for V ≈ H Hᵀ: the mean of its two factors."""

    base: Initializer

    def __call__(self, problem: Problem, rng: torch.Generator) -> Factors:
        W, H = self.base(problem, rng)
        return Factors((W + H) / 2, (W + H) / 2)
