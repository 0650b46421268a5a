"""Factorizations of one V, side by side: each iteration reads V twice, however many there are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Event
from typing import NamedTuple

import numpy as np
import torch

from factormer import kernels
from factormer.accelerate.her import HER
from factormer.data import Dense, Sparse
from factormer.data.factors import Factors
from factormer.kernels.threads import share
from factormer.problem.arrays import side_by_side as beside
from factormer.problem.problem import Problem
from factormer.problem.products import RESOLVED
from factormer.solvers.hals import FLAT
from factormer.solvers.loop import loop

_EVERY = 10  # iterations between two looks at what they gain
_PAIR = 2  # problems side by side, if there are few
_LONG = 10**9  # work enough to wake every thread
_MANY = 2**31  # rows or columns of sparse data


class Lines:
    """The points [Wᵀ, Hᵀ] (r, m + n) of up to `count` problems, and iterations of HER on all.

    Those that are there have the places 0 … len - 1; the last takes the place of one that leaves.
    """

    def __init__(
        self, V: Dense | Sparse, dtype: torch.dtype, rank: int, solver: HER, count: int
    ) -> None:
        loops, shared, restart = kernels.compiled(), kernels.shared_products(), kernels.restarting()
        assert loops is not None
        assert shared is not None
        assert restart is not None
        (m, n), work, real, hals = V.shape, float(V.work()), kernels.real(dtype), solver.solver
        sweeps = hals.sweeps(m, n, rank, work), hals.sweeps(n, m, rank, work)
        self.V, self._rank, self._real, self._count = V.to(dtype), rank, real, 0
        self.sq_norm = float(V.sq_norm())
        self._sparse = _SparseProducts.of(self.V) if isinstance(self.V, Sparse) else None
        self._points = shared.Points(*(np.empty((count * rank, m + n), real) for _ in range(4)))
        self._progress = np.zeros((count, 6))
        rounding = 2 * torch.finfo(dtype).eps
        self._sizes = shared.Sizes(rank, m, self.sq_norm, RESOLVED[dtype], rounding)
        self._sweeps = shared.Sweeps(*shared.sweeping(real), *sweeps, FLAT[dtype])
        self._rates = restart.Rates(*solver.accelerator.rates)
        self._first = (*[float(solver.accelerator.beta)] * 2, 1.0, math.inf, 1.0, shared.RUNNING)
        self._scratch, self._parts, self._kernels = (
            shared.Scratch.of(rank, real),
            loops.parts(),
            shared,
        )

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another."""
        return self._count == len(self._progress)

    def enter(self, x: np.ndarray) -> None:
        """Add a problem at this point, in the last place."""
        at = self._at(self._count)
        self._points.kept[at] = self._points.proposed[at] = x
        self._progress[self._count] = self._first
        self._count += 1

    def leave(self, k: int) -> np.ndarray:
        """Take out the problem in place k; returns its point, in float64."""
        x = self._points.kept[self._at(k)].astype(np.float64)
        self._count -= 1
        if k < self._count:
            for F in self._points:
                F[self._at(k)] = F[self._at(self._count)]
            self._progress[k] = self._progress[self._count]
        return x

    def iterate(self) -> tuple[np.ndarray, np.ndarray]:
        """One iteration of all: the squared error of each, and whether it has digits enough."""
        step = self._kernels.half_steps(self._real)
        for side, points in enumerate((self._points.proposed, self._points.new)):
            self._multiply(points, side, 0)
            given = self._points, self._progress, self._sizes, self._sweeps, self._rates
            step(*given, self._scratch, side, 0, self._count)
        now = self._progress[: self._count]
        resolved = now[:, self._kernels.STATE] == self._kernels.RUNNING
        return now[:, self._kernels.ERROR].copy(), resolved

    def look(self, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Squared error, projected gradient and ‖V‖(‖W‖ + ‖H‖) of points from place `first` on."""
        errors, slopes, norms = (np.empty(self._count) for _ in range(3))
        for side in range(2):
            self._multiply(self._points.kept, side, first)
        look = self._kernels.looks(self._real)
        look(self._points, self._sizes, self._scratch, first, self._count, errors, slopes, norms)
        return errors[first:], slopes[first:], norms[first:]

    def settle(self, k: int) -> tuple[bool, float]:
        """Make W in place k the best for H, after a look; whether it is, and the squared error."""
        at, points = self._at(k), self._points
        kept, F = (A[at].astype(np.float64) for A in (points.kept, points.products))
        scratch = self._kernels.Scratch.of(self._rank, float)
        is_best, error = self._kernels.settled()(
            self._parts, kept, F, self._sizes, self._sweeps.flat, scratch, np.empty_like(kept)
        )
        points.kept[at] = kept
        return is_best, error

    def _at(self, k: int) -> slice:
        return slice(self._rank * k, self._rank * (k + 1))

    def _multiply(self, points: np.ndarray, side: int, first: int) -> None:
        """To products: (VᵀW)ᵀ (side 0), or (VH)ᵀ, of the points from place `first` on."""
        m, rows = self._sizes.m, slice(self._rank * first, self._rank * self._count)
        x, out = (torch.from_numpy(A[rows]) for A in (points, self._points.products))
        given, out = (x[:, :m], out[:, m:]) if side == 0 else (x[:, m:], out[:, :m])
        if isinstance(self.V, Dense):
            torch.mm(given, self.V.entries if side == 0 else self.V.entries.mT, out=out)
        elif self._sparse is not None:
            self._sparse(points[rows], self._points.products[rows], side)
        else:
            out.copy_(((self.V.T if side == 0 else self.V) @ given.mT).mT)


class Fit(NamedTuple):
    """A point, and its squared error."""

    factors: Factors
    error: float


def side_by_side(
    problem: Problem,
    solver: HER,
    starts: list[Factors],
    n_iter: int,
    *,
    gain: float = 0.0,
    until: float | None = None,
) -> list[Fit]:
    """Iterations on one dense V from each start: in pairs, over as many threads as there are.

    A pair ends early once ten iterations lower both errors by less than this share, and all do once
    `time.perf_counter()` is at `until`, or one is interrupted. Rounding does not depend on the
    threads. Where nothing can be compiled, or fits are so good that these iterations lack digits,
    they are made one after another.
    """
    V, fits = problem.V, list[Fit | None]([None] * len(starts))
    wanted = ((name, kernels.real(V.dtype)) for name in ("half_steps", "sweeping"))
    alone = not isinstance(V, Dense) or None in (kernels.shared_products(*w) for w in wanted)
    interrupted = Event()

    def is_over() -> bool:
        return interrupted.is_set() or (until is not None and time.perf_counter() >= until)

    def some(first: int, last: int) -> None:
        for pair in range(first, last):
            at = range(len(starts))[_PAIR * pair : _PAIR * (pair + 1)]
            begun = [starts[k] for k in at]
            made = None if alone else _together(problem, solver, begun, n_iter, gain, is_over)
            for k, fit in zip(at, made or [None] * len(at), strict=True):
                fits[k] = fit or _alone(problem, solver, starts[k], n_iter, is_over)

    def pairs(first: int, last: int) -> None:
        try:
            with torch.no_grad():  # which is a setting of each thread
                some(first, last)
        except BaseException:
            interrupted.set()  # since the other threads are waited for
            raise

    share(pairs, -(-len(starts) // _PAIR), work=_LONG)
    return [fit for fit in fits if fit is not None]


def _together(
    problem: Problem,
    solver: HER,
    starts: list[Factors],
    n_iter: int,
    gain: float,
    is_over: Callable[[], bool],
) -> list[Fit] | None:
    """None where errors are too small."""
    V, (m, _) = problem.V, problem.V.shape
    assert isinstance(V, Dense)
    lines = Lines(V, V.dtype, problem.rank, solver, len(starts))
    for x in starts:
        lines.enter(beside(x))
    before = errors = np.full(len(starts), math.inf)
    for t in range(1, n_iter + 1):
        errors, resolved = lines.iterate()
        if not resolved.all() or not np.isfinite(errors).all():
            return None
        if is_over():
            break
        if t % _EVERY == 0:
            if (before - errors < gain * errors).all():
                break
            before = errors
    points = [torch.from_numpy(lines.leave(k)).to(V.dtype).mT for k in reversed(range(len(starts)))]
    ends = zip(reversed(points), errors, strict=True)
    return [Fit(Factors(x[:m].contiguous(), x[m:].contiguous()), float(e)) for x, e in ends]


def _alone(
    problem: Problem, solver: HER, x: Factors, n_iter: int, is_over: Callable[[], bool]
) -> Fit:
    looks = loop(problem, solver, x, limit=n_iter, at_most=_EVERY)
    look = next(looks)
    while not is_over() and (later := next(looks, None)) is not None:
        look = later
    return Fit(look.factors, float(look.state.sq_error(problem)))


class _SparseProducts(NamedTuple):
    """Products of V and of Vᵀ with points [Wᵀ, Hᵀ], compiled; and room for them."""

    multiply: Callable[..., None]
    m: int
    rows: tuple[tuple[np.ndarray, ...], ...]  # of Vᵀ and of V: starts, columns and entries
    rooms: tuple[np.ndarray, ...]  # for some components of W, and of H

    @classmethod
    def of(cls, V: Sparse) -> _SparseProducts | None:
        """None where they cannot be compiled, or V has more rows or columns than 32 bits count."""
        real = kernels.real(V.dtype)
        sparse = kernels.sparse_products("multiply", real) if max(V.shape) < _MANY else None
        if sparse is None:
            return None
        rows = tuple(
            (
                R.starts.numpy().astype(np.int64),
                R.columns.numpy().astype(np.int32),
                R.values.numpy(),
            )
            for R in (V.T.by_rows, V.by_rows)
        )
        rooms = tuple(np.zeros((size, sparse.WIDE), real) for size in V.shape)
        return cls(sparse.multiply(real), V.shape[0], rows, rooms)

    def __call__(self, points: np.ndarray, out: np.ndarray, side: int) -> None:
        """To out: (VᵀW)ᵀ (side 0), or (VH)ᵀ."""
        x, o = (0, self.m) if side == 0 else (self.m, 0)
        self.multiply(*self.rows[side], points, x, out, o, self.rooms[side], self.rooms[1 - side])
