"""W for a known H: of new rows, and at the end of a fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Blocks, Dense, Matrix, Sparse, readings
from factormer.data.base import inner
from factormer.data.factors import Factors
from factormer.data.intake import check_mean
from factormer.data.parts import Parts
from factormer.data.spread import Spread
from factormer.kernels.threads import threads
from factormer.problem.error import rmse
from factormer.problem.loss import Loss
from factormer.problem.passes import matrix_of
from factormer.problem.penalties import Fixed, Penalties
from factormer.problem.problem import Problem
from factormer.run.choose import auto_solver
from factormer.run.result import Result, Status
from factormer.run.solve import solve
from factormer.run.stop import Stationary, StopRule, TimeBudget, any_of
from factormer.run.trace import Trace
from factormer.solvers.coding import Coder
from factormer.solvers.newton import Coded as ByCore
from factormer.solvers.newton import coded, thinned

_PLAIN = (0.0, 0.0, None)
_EXACT = 1e-8  # fall of the projected gradient at which coefficients are called exact
_LIMIT = 500  # iterations to get there, at most
_CLEAR = (
    1e-2  # of the squared error with penalties: without them it has digits enough from there on
)
_STEPS = 2e4  # entries × iterations, if each is many proximal steps; at least a fifth of _LIMIT


class Coded(NamedTuple):
    """W, the number of iterations, and whether there was time for all rows."""

    W: Float[Tensor, "m r"]
    n_iter: int
    whole: bool


def coefficients(
    V: Matrix,
    H: Float[Tensor, "n r"],
    loss: Loss,
    on_w: Penalties,
    W: Tensor | None = None,
    *,
    until: float | None = None,
    at_most: int | None = None,
) -> Coded:
    """The best W for V and H, `until` a reading of `time.perf_counter()`.

    Exact for least squares, which counts as one iteration; else by several, `at_most` so many, from
    W, or from equal numbers.
    """
    if is_least_squares(V, loss, on_w):
        W, whole = Coder.of(H, *(on_w.by_rows or _PLAIN)).within(V, W, until=until)
        return Coded(W, 1, whole)
    if isinstance(V, Blocks):
        (W,), _ = V.sweep(Coding(H, loss, on_w, V.scale))
        return Coded(W, 1, True)
    result = iterated(V, H, loss, on_w, W, until=until, at_most=at_most)
    return Coded(result.factors.W, result.n_iter, result.status is not Status.TIME_LIMIT)


@dataclass(frozen=True, eq=False)
class Coding:
    """The best rows of W for a block of c·V, whatever the loss."""

    H: Float[Tensor, "n r"]
    loss: Loss
    on_w: Penalties
    c: float

    makes: ClassVar = (1, 0)

    @readings.counted()  # what is read again of a block is no pass
    def __call__(self, block: Any) -> Parts:
        found = iterated(matrix_of(block, self.c), self.H, self.loss, self.on_w)
        return (found.factors.W,), ()


@dataclass(frozen=True, eq=False)
class Settling:
    """The best rows of W, from those of VH, and the change of the squared error."""

    coder: Coder
    HtH: Float[Tensor, "r r"]

    makes: ClassVar = (1, 1)

    def __call__(self, VH: Tensor, W: Tensor, V: Matrix | None = None) -> Parts:
        best, _ = self.coder.within(Dense(VH) if V is None else V, W, VH=VH)
        return (best,), (inner(best - W, (best + W) @ self.HtH - 2 * VH),)


def settled_by_products(V: Blocks, result: Result) -> Result:
    """The result with the best W for H, from the VH of the last pass: V is not read again."""
    (W, H), size = result.factors, math.prod(V.shape)
    VH, part = V @ H, Settling(Coder.of(H), H.mT @ H)
    if not part.coder.knows_by_products and isinstance(V, Spread):
        return result
    (best,), (change,) = V.by_rows(part, VH, W) if isinstance(V, Spread) else part(VH, W, V)
    error = (result.error.square() + change / size).clamp(min=0).sqrt()
    if not bool(error <= result.error):
        return result
    return replace(result, factors=Factors(best, H), error=error)


def is_least_squares(V: Matrix, loss: Loss, on_w: Penalties) -> bool:
    """Whether the rows of W are least-squares problems that can be solved exactly."""
    return loss.is_quadratic and on_w.by_rows is not None and isinstance(V, Dense | Sparse | Blocks)


def iterated(
    V: Matrix,
    H: Float[Tensor, "n r"],
    loss: Loss,
    on_w: Penalties,
    W: Tensor | None = None,
    *,
    until: float | None = None,
    at_most: int | None = None,
) -> Result:
    """The W that fits V ≈ W Hᵀ best for a given H, where `Coder` cannot find it.

    All of H is known, and the start is W, or equal coefficients; `until` is a reading of
    `time.perf_counter()`. Convex for 1 ≤ β ≤ 2, where the stop rule is the accuracy; a local
    minimum otherwise. Components are brought to one size first, unless a penalty on W depends on
    their size: the gradient of a tiny one would not count.
    """
    given, rank = H, H.shape[1]
    sizes = _sizes(H) if on_w.is_plain else torch.ones_like(H[0])
    H, W = H / sizes, None if W is None else W * sizes
    known = Fixed(H, torch.ones(rank, dtype=torch.bool))
    asked = thinned(Problem(V, rank, loss, on_w, Penalties((known,))))
    problem, mean = asked.normalized()
    check_mean(mean)
    H = problem.on_h.placed(torch.empty_like(H))
    level = (H.mean(dim=0) @ sizes).clamp(min=torch.finfo(H.dtype).tiny)
    plain = _afforded(problem, (sizes / level).expand(V.shape[0], rank).contiguous())
    plain, reference = problem.on_w.placed(plain), None
    if W is None:
        W = plain
    else:
        W = problem.on_w.placed(problem.scaled_back(Factors(W, H), 1 / mean).W)
        reference = problem.stationarity(Factors(plain, H))
    limit = _LIMIT if at_most is None else min(_LIMIT, at_most)
    with torch.no_grad(), threads():
        by_core = coded(problem, Factors(W, H), limit, ends=True, until=until)
    if by_core is not None:
        return _scaled_back(asked, mean, sizes, given, _result_of(problem, by_core, H))
    name, solver = auto_solver(problem)
    with torch.no_grad(), threads():
        rules: list[StopRule] = [Stationary(_EXACT, every=5, reference=reference)]
        if until is not None:
            rules.append(TimeBudget(0.0, since=until))
        x0, stop = Factors(W, H), any_of(*rules)
        if name != "newton" and not loss.is_quadratic:
            limit = min(limit, max(_LIMIT // 5, int(_STEPS / math.prod(V.shape))))
        result = solve(problem, solver, x0, stop=stop, max_iter=limit)
    return _scaled_back(asked, mean, sizes, given, result)


def _result_of(problem: Problem, found: ByCore, H: Tensor) -> Result:
    """Return what the core has found as a result."""
    done = Status.CONVERGED if found.whole else Status.TIME_LIMIT
    errors, seconds = found.history.T.copy()
    trace = Trace.of(torch.from_numpy(errors), seconds, 1 + np.arange(len(errors)))
    trace.entries, trace.measure = problem.size().cpu().numpy(), problem.measure
    error = torch.tensor(errors[-1], dtype=torch.float64)
    return Result(Factors(found.W, H), done, trace, error)


def _scaled_back(asked: Problem, mean: Tensor, sizes: Tensor, H: Tensor, result: Result) -> Result:
    """Return the result for V itself and H as it was given."""
    unit, x = asked.unit(mean), asked.scaled_back(result.factors, mean)
    return replace(
        result,
        factors=Factors(asked.on_w.placed(x.W / sizes), H),
        trace=result.trace.scaled(unit),
        error=unit * result.error,
    )


def _sizes(H: Float[Tensor, "n r"]) -> Float[Tensor, "r"]:
    """Return the largest entry of each column; 1 where it is zero, or too small to divide by."""
    sizes = H.abs().amax(dim=0)
    return torch.where(sizes > torch.finfo(H.dtype).tiny ** 0.5, sizes, 1.0)


def _afforded(problem: Problem, W: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
    """W, scaled down until its penalty is at most the number of entries, each about 1.

    From a start dominated by its penalty, the gradient would fall by `_EXACT` too early.
    """
    value, size = float(problem.on_w.value(W)), float(problem.size())
    while value > size:
        less = float(problem.on_w.value(W / 10))
        if less >= value and math.isfinite(value):
            break
        W, value = W / 10, less
    return W


def misfit_of(problem: Problem, result: Result) -> Float[Tensor, "*b"] | None:
    """Return √(2·misfit / entries) where the error includes penalties; else None."""
    if not (problem.on_w.terms or problem.on_h.terms):
        return None
    V, x = problem.V, result.factors
    if isinstance(V, Blocks) or (problem.is_quadratic and problem.is_elastic):
        penalty = problem.on_w.value(x.W.double()) + problem.on_h.value(x.H.double())
        whole = result.error.double().clamp(min=torch.finfo(torch.float64).tiny)
        left = 1 - 2 * penalty / problem.size() / whole / whole  # as squares might underflow
        unknown = bool(whole.isinf().all())  # since there was no time
        if isinstance(V, Blocks) or unknown or bool((left > _CLEAR).all()):
            return result.error * left.clamp(min=0).sqrt()  # V is not read again
    return rmse(replace(problem, on_w=Penalties(()), on_h=Penalties(())), x)
