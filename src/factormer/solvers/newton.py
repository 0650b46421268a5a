"""Newton steps row by row for any β-divergence, with weights: the literal twin of the core's.

A row x ≥ 0 of a factor minimises Σᵢ ωᵢ d(vᵢ, bᵢ·x) + λ₁Σx + λ₂‖x‖²/2, with bᵢ the rows of the other
factor. `core/updates/newton.hpp` has the fast steps, which `run.core` takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense, Matrix, Observed, Sparse, for_core, readings
from factormer.data.factors import Factors
from factormer.kernels.core import apart, core, width
from factormer.problem.losses import Beta
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.sentence import Sentence

# Entries, and the share of them that may be other than zero, up to which V stays dense, or not.
_FEW, _THIN = 20_000, 0.25
_AT_ONCE = 2**20  # numbers in an array of a block of rows, about
_SMALLEST, _FLAT = 1e-150, 2.0**-104  # a curvature that counts as none; as a share of the largest
_SLOW = 1e-12  # of the largest curvature: what a coordinate without curvature falls by
_GAIN = 1e-4  # of the first sweep's gain: a gain at which sweeps end
_SWEEPS = 50  # over the coordinates of a step of the core, for a known H
_HALVINGS = 12  # of a step, at most


class NewtonState(NamedTuple):
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
            H = self.half_step(problem, W, H)
        W = self.half_step(T, H, W)  # the same code, by eq. 7
        x = Factors(W, H)
        return NewtonState(x, max(float(problem.objective(x)), 0.0))  # but for rounding

    def adopt(self, problem: Problem, state: NewtonState, x: Factors) -> NewtonState:
        return NewtonState(x)

    def half_step(
        self, problem: Problem, W: Float[Tensor, "m r"], H: Float[Tensor, "n r"]
    ) -> Float[Tensor, "n r"]:
        """Return the new H."""
        beta = problem.loss.kernel_beta
        assert beta is not None
        out, B = H.clamp(min=0).double(), W.clamp(min=0).double()
        size = max(_AT_ONCE // max(len(B), H.shape[1] ** 2), 1)
        for _ in range(self.n_steps):
            for rows, v, omega in _blocks(problem.T.V, size):
                out[rows] = self._rows(beta, v, omega, B, out[rows], problem.on_h)
        return out.to(H.dtype)

    def _rows(
        self,
        beta: float,
        v: Float[Tensor, "k m"],
        omega: Float[Tensor, "k m"],
        B: Float[Tensor, "m r"],
        x: Float[Tensor, "k r"],
        on: Penalties,
    ) -> Float[Tensor, "k r"]:
        """A step of k rows: to the minimum of the model, or as far as that descends."""
        l1, l2 = on.elastic or (0.0, 0.0)
        held = torch.zeros(x.shape[1], dtype=torch.bool) if on.fixed is None else on.fixed.at
        y = x @ B.mT
        model = _model(beta, v, omega, y, self.near)
        g = model.slope @ B + l1 + l2 * x
        G = torch.einsum("ki,ic,ie->kce", model.curve, B, B)
        G = G + l2 * torch.eye(x.shape[1], dtype=x.dtype)
        step = self._lowest(g, G, x, held)
        way, linear = step @ B.mT, ((l1 + l2 * x) * step).sum(dim=1)
        bend = l2 * step.square().sum(dim=1)

        def slope_at(t: Tensor) -> Tensor:  # of the loss of each row along its step
            slope = _slope(beta, v, omega, model.frozen, y + t[:, None] * way)
            return linear + t * bend + (way * slope).sum(dim=1)

        t = torch.ones(len(x), dtype=x.dtype)
        if beta == 2:  # the model is the loss
            return (x + step).clamp(min=0)
        end = slope_at(t)
        for _ in range(_HALVINGS):  # a convex function falls to t if its slopes at t/2 and t do
            rises = end > 0
            if not bool(rises.any()):
                break
            now = slope_at(t / 2)
            falls = now + end <= 0
            t = torch.where(rises & ~falls, t / 2, t)
            end = torch.where(rises, torch.where(falls, 0.0, now), end)
        t = torch.where(end > 0, 0.0, t)
        return (x + t[:, None] * step).clamp(min=0)

    def _lowest(
        self,
        g: Float[Tensor, "k r"],
        G: Float[Tensor, "k r r"],
        x: Float[Tensor, "k r"],
        held: Tensor,
    ) -> Float[Tensor, "k r"]:
        """The step s ≥ −x that sweeps over coordinates find for g·s + ½ s·G s."""
        step, bends = torch.zeros_like(x), G.diagonal(dim1=1, dim2=2)
        moves, first, gain = ((x > 0) | (g < 0)) & ~held, None, torch.ones_like(x[:, 0])
        most = (bends * moves).amax(dim=1, keepdim=True).clamp(min=_SMALLEST)
        flat = bends <= _FLAT * most
        bent = torch.where(flat, _SLOW * most, bends)
        goes_on = gain > 0
        for _ in range(self.n_sweeps):
            gain = torch.zeros_like(gain)
            for c in range(x.shape[1]):
                at = step[:, c].clone()
                others = g[:, c] + (G[:, c] * step).sum(dim=1) - bends[:, c] * at
                to = torch.maximum(-others / bent[:, c], -x[:, c])
                to = torch.where(flat[:, c], to.clamp(max=0), to)  # it can only fall
                step[:, c] = torch.where(moves[:, c] & goes_on, to, at)
                gain += bends[:, c] * (step[:, c] - at).square()
            first = gain if first is None else first
            goes_on = goes_on & (gain > _GAIN * first)
            if not bool(goes_on.any()):
                break
        return step


class _Model(NamedTuple):
    """Slope and curvature of each entry's model, and the slope of the part that is concave."""

    slope: Tensor
    curve: Tensor
    frozen: Tensor


def _model(beta: float, v: Tensor, omega: Tensor, y: Tensor, near: float) -> _Model:
    """Return the models of entries; far below v, those of the point at `near` times v."""
    if beta == 2:
        return _Model(omega * (y - v), omega, torch.zeros_like(y))
    z = torch.maximum(y, near * v).clamp(min=_least(beta))
    power = omega * z ** (beta - 2)
    slope = power * (z - v)
    if beta < 1:
        return _Model(slope, (2 - beta) * power * v / z, power * z)
    if beta > 2:
        return _Model(slope, (beta - 1) * power, -power * v)
    return _Model(slope, power * ((beta - 1) + (2 - beta) * v / z), torch.zeros_like(y))


def _slope(beta: float, v: Tensor, omega: Tensor, frozen: Tensor, y: Tensor) -> Tensor:
    """Return the slopes of entries, with the concave parts replaced by their tangents."""
    z = y.clamp(min=_least(beta))
    power = omega * z ** (beta - 2)
    up = power * z if beta >= 1 else 0.0
    down = power * v if beta <= 2 else 0.0
    return frozen + up - down


def _least(beta: float) -> float:
    """Return the least fit of which powers are finite."""
    return 1e-150 if beta == 1 else 1e-90 if beta == 0 else 10 ** (-260 / (abs(beta) + 4))


def _blocks(V: Matrix, size: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows of V, dense, and their weights; entries without weight are 1."""
    data = V.V if isinstance(V, Observed) else V
    for rows, v in data.blocks(size):
        if not isinstance(V, Observed):
            yield rows, v.double(), torch.ones_like(v, dtype=torch.float64)
            continue
        omega = V.weights[rows] if isinstance(data, Dense) else _weights(V, rows)
        yield rows, torch.where(omega > 0, v.double(), 1.0), omega.double()


def _weights(V: Observed, rows: slice) -> Tensor:
    assert isinstance(V.V, Sparse)
    at = replace(V.V.by_rows, values=V.weights)
    return at.block(rows.start, rows.stop).to_dense()


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


class Coded(NamedTuple):
    """The rows of W for a known H, the steps made, and whether there was time for all."""

    W: Float[Tensor, "m r"]
    n_iter: int
    whole: bool
    history: np.ndarray  # √(2·objective / entries) and seconds after 0, 1, … steps


def coded(
    problem: Problem,
    x: Factors,
    n_steps: int,
    *,
    n_sweeps: int = _SWEEPS,
    ends: bool = False,
    until: float | None = None,
) -> Coded | None:
    """The W of x after so many steps of the core, fewer if it `ends` where they gain nothing more.

    `until` is a reading of `time.perf_counter()`. None where the core does not serve.
    """
    module, V, beta = core(), problem.V, problem.loss.kernel_beta
    known = isinstance(V, Dense | Sparse | Observed) and V.device.type == "cpu"
    if module is None or beta is None or not known or not problem.is_elastic:
        return None
    (l1, l2), fixed, r = problem.on_w.elastic or (0.0, 0.0), problem.on_w.fixed, x.W.shape[1]
    held = [] if fixed is None else fixed.at.nonzero().flatten().tolist()
    found = module.run(
        [for_core(V)],
        [0],
        [r],
        [0],
        [tuple(F.double().clamp(min=0).numpy() for F in x)],
        [(held, list(range(r)))],
        max_iter=n_steps,
        tol=0.0,
        l1=(float(l1), 0.0),
        l2=(float(l2), 0.0),
        finish="exact" if ends else "none",
        order=False,
        scale="none",
        seconds=math.inf if until is None else max(until - time.perf_counter(), 0.0),
        threads=width(),
        loss=(beta, n_sweeps, 1.0, 1, 0, 0, False),
    )
    (lane,) = apart(found, [V.shape], [r])
    if lane.status == "INTERRUPTED":
        raise KeyboardInterrupt
    readings.add(lane.iterations)
    W, is_whole = torch.from_numpy(lane.W).to(x.W.dtype), lane.status != "TIME_LIMIT"
    return Coded(W, lane.iterations, is_whole, lane.history)


def thinned(problem: Problem) -> Problem:
    """The problem with V as a sparse matrix, if most of it is zero and the loss Kullback–Leibler.

    A zero adds a linear term to the loss and nothing to its curvature, so that steps on stored
    entries alone are the same, and faster.
    """
    V = problem.V
    if problem.loss != Beta(1.0) or not isinstance(V, Dense):
        return problem
    if len(V.shape) > 2 or V.device.type != "cpu":
        return problem
    size = V.stored.numel()
    if size <= _FEW or int(V.stored.count_nonzero()) > _THIN * size:
        return problem
    return replace(problem, V=Sparse.of(scipy.sparse.csr_array(V.entries.numpy())))
