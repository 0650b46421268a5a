"""Newton steps row by row, for any β-divergence with weights: compiled, on one matrix and a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.data import Dense, Sparse, readings
from factormer.data.factors import Factors
from factormer.kernels.threads import scratch, share
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.sentence import Sentence

# Entries, and the share of them that may be other than zero, up to which V stays dense, or not.
_FEW, _THIN = 20_000, 0.25
_HIGH, _MANY = 12, 4e6  # the rank, and multiplications of Hessians, from which products are faster
_ROOM = 2e7  # products b_c b_e of rows of a factor that there is memory for
_AT_ONCE = 131_072  # entries of V whose weights are in the cache between two products


@dataclass(frozen=True)
class NewtonState:
    """The point, and the objective there if the last step computed it."""

    factors: Factors
    value: float | None = None

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """Twice the objective."""
        if self.value is None:
            return problem.sq_error(self.factors)
        return torch.tensor(2 * self.value, dtype=torch.float64)


@dataclass(frozen=True)
class Newton:
    """Each row moves towards the minimum of a quadratic model of its loss, while that descends.

    The model has the exact curvature where d is convex (1 ≤ β ≤ 2: Newton's), and bounds d from
    above elsewhere. `n_sweeps` of coordinate descent find its minimum over X ≥ 0. A descent
    method. Costs r²/2 multiplications an entry, and needs several times fewer iterations than
    multiplicative updates (docs/losses.md). L1 and L2 penalties are part of the model, and known
    columns stay.
    """

    n_steps: int = 1
    n_sweeps: int = 4
    near: float = 1e-5  # share of an entry that its fit is taken to be at least

    def init(self, problem: Problem, x0: Factors) -> NewtonState:
        _check(problem)
        return NewtonState(x0)

    def step(self, problem: Problem, state: NewtonState) -> NewtonState:
        (W, H), T = state.factors, problem.T
        if not problem.on_h.is_settled:
            H = self.half_step(problem, W, H, wants_loss=False)[0]
        W, value = self.half_step(T, H, W)  # the same code, by eq. 7
        l1, l2 = _weights(problem.on_h)
        value += float(l1 * H.double().sum() + l2 / 2 * H.double().square().sum())
        return NewtonState(Factors(W, H), max(value, 0.0))  # rounding can lead below an exact fit

    def adopt(self, problem: Problem, state: NewtonState, x: Factors) -> NewtonState:
        return NewtonState(x)

    def half_step(
        self,
        problem: Problem,
        W: Float[Tensor, "m r"],
        H: Float[Tensor, "n r"],
        *,
        wants_loss: bool = True,
    ) -> tuple[Float[Tensor, "n r"], float]:
        """The new H, and the objective with it, without the penalty on W."""
        if not can_step(problem):
            raise ImportError("Newton steps need a β-divergence, and numba: pip install numba")
        readings.add(self.n_steps)
        if is_plain_kullback(problem):
            value = 0.0
            step = self._by_products if _is_large(problem) else self._side_by_side
            for _ in range(self.n_steps):
                H, value = step(problem, W, H, wants_loss)
            return H, value
        return self._row_by_row(problem, W, H, wants_loss)

    def options(self, on: Penalties, r: int) -> tuple[float, float, float, int, np.ndarray]:
        """Return the options that `kernels.kullback` takes."""
        (l1, l2), held = _weights(on), np.array(_held(on, r))
        return float(l1), float(l2), float(self.near), self.n_sweeps, held

    def _side_by_side(
        self, problem: Problem, W: Tensor, H: Tensor, wants_loss: bool
    ) -> tuple[Tensor, float]:
        loops, at, (n, r) = kernels.kullback_rows(), problem.entries, H.shape
        assert loops is not None
        m, dtype = len(W), at.values.dtype
        B, options = W.clamp(min=0).contiguous(), loops.Options(*self.options(problem.on_h, r))
        fixed = (at.values.reshape(m, n), B.numpy(), B.sum(dim=0).numpy())
        X, out, kernel = H.contiguous().numpy(), np.empty((n, r), dtype), loops.rows(dtype)
        losses = np.zeros(n)

        def some(a: int, b: int) -> None:
            room = scratch(loops.Room.of, max(m, n), r, dtype)
            losses[a] = kernel(*fixed, X, out, a, b, options, wants_loss, room)

        share(some, n, work=m * n * r * r // 2)
        return torch.from_numpy(out), float(losses.sum())

    def _by_products(
        self, problem: Problem, W: Tensor, H: Tensor, wants_loss: bool
    ) -> tuple[Tensor, float]:
        rows, products, at = (
            kernels.kullback_rows(),
            kernels.kullback_by_products(),
            problem.entries,
        )
        assert rows is not None
        assert products is not None
        at, m, (n, r) = problem.entries, len(W), H.shape
        dtype = at.values.dtype
        parts, options = products.parts(dtype), rows.Options(*self.options(problem.on_h, r))
        V, B = at.values.reshape(m, n), W.clamp(min=0).contiguous()
        linear, X, out = B.sum(dim=0).numpy(), H.contiguous().numpy(), H.new_empty(n, r)
        BT, pairs = B.mT.contiguous(), B.new_zeros(rows.lines_of(r), m)
        parts.pairs(BT.numpy(), pairs.numpy())
        lanes, groups = rows.LANES, -(-n // rows.LANES)
        sides = (max(m, n), min(m, n), r, len(pairs), lanes, W.dtype)  # the same for W and for H
        at_once, losses = _groups_at_once(m, lanes), np.zeros(groups)

        def some(a: int, b: int) -> None:
            room, arrays = scratch(rows.Room.of, 1, r, dtype), scratch(_by_groups, *sides)
            for first in range(a, b, at_once):
                k = min(at_once, b - first)
                lines = (m, m, m, r, r, len(pairs), r)
                fit, pull, curve, x, pulled, G, steps = (
                    A[: k * c * lanes].view(k, c, lanes) for A, c in zip(arrays, lines, strict=True)
                )
                span = (first * lanes, min((first + k) * lanes, n))
                parts.spread(X, *span, _flat(x))
                torch.bmm(B.expand(k, m, r), x, out=fit)
                parts.weigh(V, *span, options, *map(_flat, (fit, pull, curve)))
                torch.bmm(BT.expand(k, r, m), pull, out=pulled)
                torch.bmm(pairs.expand(k, *pairs.shape), curve, out=G)
                parts.steps(linear, k, options, *map(_flat, (pulled, G, x, steps)), room)
                way = torch.bmm(B.expand(k, m, r), steps, out=curve)
                ends = (options, wants_loss, *map(_flat, (fit, way, x, steps)), room)
                losses[first] = parts.leave(V, linear, out.numpy(), *span, *ends)

        share(some, groups, work=m * n * r * r // 2)
        return out, float(losses.sum())

    def _row_by_row(
        self, problem: Problem, W: Tensor, H: Tensor, wants_loss: bool
    ) -> tuple[Tensor, float]:
        loops, at = kernels.newton_rows(), problem.T.entries
        assert loops is not None
        dtype, (n, r), beta = at.values.dtype, H.shape, problem.loss.kernel_beta
        assert beta is not None
        B = W.clamp(min=0).contiguous()
        X, out = H.contiguous().numpy(), np.empty((n, r), dtype)
        plain = not len(at.weights)
        linear = beta == 1 and plain and (at.complete or not len(at.columns))
        fill = at.complete and bool(len(at.columns) or not len(at.values)) and beta != 1
        model = (beta, *_weights(problem.on_h), linear, self.near, self.n_steps, self.n_sweeps)
        options = np.array([*model, fill, wants_loss, *_held(problem.on_h, r)])
        kernel = loops.newton(dtype)
        width = max(len(W), n) if fill else max(at.widest, problem.entries.widest)
        fixed = (B.numpy(), B.mT.contiguous().view(-1).numpy(), B.sum(dim=0).numpy())
        cuts, losses = at.cuts, np.zeros(len(at.cuts))

        def some(a: int, b: int) -> None:
            room = scratch(_Room.of, r, width, dtype)
            arrays = (at.starts, at.columns, at.values, at.weights, *fixed, X, out)
            losses[a] = kernel(*arrays, cuts[a], cuts[b], options, *room)

        work = (len(W) * n if fill else len(at.values)) * r * r // 2
        share(some, len(cuts) - 1, work=work)
        return torch.from_numpy(out), float(losses.sum())


def can_step(problem: Problem) -> bool:
    """Whether there are compiled Newton steps for this loss and data."""
    if problem.loss.kernel_beta is None:
        return False
    dtype = kernels.real(problem.V.dtype)
    if not is_plain_kullback(problem):
        return kernels.newton_rows("newton", dtype) is not None
    if _is_large(problem):
        return kernels.kullback_by_products("parts", dtype) is not None
    return kernels.kullback_rows("rows", dtype) is not None


def _is_large(problem: Problem) -> bool:
    (*_, m, n), r = problem.V.shape, problem.rank
    return r >= _HIGH and m * n * r * r > _MANY and max(m, n) * r * r < _ROOM


def _groups_at_once(m: int, lanes: int) -> int:
    return max(_AT_ONCE // (m * lanes), 1)


def _by_groups(
    longest: int, shortest: int, r: int, n_lines: int, lanes: int, dtype: torch.dtype
) -> list[Tensor]:
    """Scratch for groups of rows: three arrays by entries of V, then x, sums, Hessians, steps."""
    k, entries = _groups_at_once(shortest, lanes), max(_AT_ONCE, longest * lanes)
    sizes = (*[entries] * 3, *(k * n * lanes for n in (r, r, n_lines, r)))
    return [torch.empty(size, dtype=dtype) for size in sizes]


def _flat(A: Tensor) -> np.ndarray:
    return A.view(-1).numpy()


class _Room(NamedTuple):
    """Scratch for rows of up to `width` entries at rank r; `logs` is where logarithms are taken."""

    B: np.ndarray
    v: np.ndarray
    weight: np.ndarray
    y: np.ndarray
    slope: np.ndarray
    curve: np.ndarray
    frozen: np.ndarray
    G: np.ndarray
    small: np.ndarray
    logs: np.ndarray
    exponents: np.ndarray
    at: np.ndarray

    @staticmethod
    def of(r: int, width: int, dtype: Any) -> _Room:
        """Weights are ones until others are written."""
        v, y, slope, curve, frozen = (np.empty(width, dtype) for _ in range(5))
        return _Room(
            B=np.empty(r * width, dtype),
            v=v,
            weight=np.ones(width, dtype),
            y=y,
            slope=slope,
            curve=curve,
            frozen=frozen,
            G=np.empty((r, r), dtype),
            small=np.empty((3, r), dtype),
            logs=np.empty(width),
            exponents=np.empty(width, np.int64),
            at=np.empty(r, np.int64),
        )


def _check(problem: Problem) -> None:
    if not problem.is_elastic:
        raise ValueError(
            Sentence(
                "{solver=newton} takes only L1 and L2 as penalties; use {solver=ao-admm} for others"
            )
        )
    if len(problem.V.shape) > 2 or problem.V.device.type != "cpu":
        raise ValueError(
            Sentence("{solver=newton} takes one matrix on a CPU; use {solver=mu} for others")
        )


def thinned(problem: Problem) -> Problem:
    """The problem with V as a sparse matrix, if most of it is zero and the loss Kullback–Leibler.

    A zero adds a linear term to the loss and nothing to its curvature, so that steps on stored
    entries alone are the same, and faster.
    """
    V = problem.V
    if not is_plain_kullback(problem) or len(V.shape) > 2 or V.device.type != "cpu":
        return problem
    assert isinstance(V, Dense)
    size = V.stored.numel()
    if size <= _FEW or int(V.stored.count_nonzero()) > _THIN * size:
        return problem
    return replace(problem, V=Sparse.of(scipy.sparse.csr_array(V.entries.numpy())))


def is_plain_kullback(problem: Problem) -> bool:
    """Whether V is dense, without weights, and the loss Kullback–Leibler."""
    return problem.loss.kernel_beta == 1 and isinstance(problem.V, Dense)


def _weights(on: Penalties) -> tuple[float, float]:
    return on.elastic or (0.0, 0.0)


def _held(on: Penalties, r: int) -> list[float]:
    return [0.0] * r if on.fixed is None else on.fixed.at.double().tolist()
