"""What a fit of the estimator is: choose a start, factorise, choose among restarts, tidy up."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from factormer.canonical import balanced, by_share, summing_to_one
from factormer.engine import factorize, starting_point
from factormer.factors import Factors
from factormer.matrix import Dense, Sparse
from factormer.nnls import Coder
from factormer.options import (
    ORDERS,
    SCALES,
    Known,
    Penalties,
    check_choice,
    check_count,
    check_loss,
    init_of,
    rank_of,
    solver_of,
    start_array,
)
from factormer.problem import Problem
from factormer.solve import Result, Status, Watch
from factormer.stream import Statistics
from factormer.terms import Asked
from factormer.trace import Row, Trace
from factormer.validate import as_tensor, check_limits

_VISIBLE = 1e-3  # fall of the error, beside ‖V‖, over the last iterations: worth a warning
_LAST = 10
_DETERMINED = ("nndsvd", "nndsvda", "custom")  # starts that chance has no part in


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that a fit depends on besides the data."""

    rank: int
    init: Any
    solver: Any
    accelerator: Any
    max_iter: int
    tol: float
    time_limit: float | None
    seed: int
    n_init: int
    asked: Asked
    known: Known | None
    order: str | None
    scale: str | None
    start: Factors | None
    callback: Callable[[Row], object] | None
    watch: Watch | None


def make_plan(options: Any, V: Dense | Sparse, W: Any, H: Any, before: Any, seed: int) -> Plan:
    """Read the parameters of an estimator; `before` are its components, to go on from if asked."""
    m, n = V.shape
    check_loss(options.beta_loss, options.solver)
    check_limits(options.max_iter, options.tol, options.time_limit)
    check_choice("order", options.order, ORDERS)
    check_choice("scale", options.scale, SCALES)
    check_count("n_init", options.n_init)
    custom = isinstance(options.init, str) and options.init == "custom"
    if not custom and (W is not None or H is not None):
        warnings.warn(
            "When init!='custom', provided W or H are ignored. Set init='custom' to use them as "
            "initialization.",
            RuntimeWarning,
            stacklevel=5,
        )
        W = H = None
    rank = rank_of(options.n_components, n, H)
    warm = options.warm_start and before is not None and tuple(before.shape) == (rank, n)
    if warm and H is None:
        H, custom = before, True
    start = None
    known = Known.read(options.fixed_components, rank, n, H if custom else None)
    if custom:
        rows = as_tensor(start_array(H, (rank, n), "H"), name="H", device=None)
        right = rows.mT.to(V.device, V.dtype)
        if W is None and (warm or known is not None):
            left = torch.zeros(m, rank, dtype=V.dtype)  # it is made exact
        else:
            left = as_tensor(start_array(W, (m, rank), "W"), name="W", device=None)
        start = Factors(left.to(right), right)
    penalties = Penalties.read(options.alpha_W, options.alpha_H, options.l1_ratio)
    fixed = None if known is None else known.mask.to(V.device)
    asked = penalties.asked((m, n), fixed)
    if start is not None and warm and known is None:
        start = Factors(Coder.of(start.H, asked.W)(V), start.H)
    if known is not None and options.accelerator not in (None, "auto"):
        raise ValueError(
            f"accelerator is {options.accelerator!r}, and networks move every component; with "
            "fixed_components choose accelerator=None"
        )
    init = "custom" if custom else init_of(options.init, rank, (m, n))
    return Plan(
        rank=rank,
        init=init,
        solver=solver_of(options.solver, init),
        accelerator=options.accelerator,
        max_iter=options.max_iter,
        tol=float(options.tol),
        time_limit=None if options.time_limit is None else float(options.time_limit),
        seed=seed,
        n_init=options.n_init,
        asked=asked,
        known=known,
        order=options.order,
        scale=options.scale,
        start=start,
        callback=options.callback,
        watch=None,
    )


def fit(V: Dense | Sparse, plan: Plan) -> tuple[Result, Coder]:
    """The best of the restarts, W being exact for its H; and what transforms new rows."""
    started, best, least = time.perf_counter(), None, math.inf
    for init, seed in _restarts(plan):
        result = _once(V, plan, init, seed, started)
        loss = float(result.rmse) if plan.asked.has_no_penalty else result.trace.rmse[-1]
        if best is None or loss < least:
            best, least = result, loss
        late = plan.time_limit and time.perf_counter() - started >= plan.time_limit
        if late or result.status is Status.INTERRUPTED:
            best = replace(best, status=result.status if not late else Status.TIME_LIMIT)
            break
    assert best is not None
    return _tidy(V, best, plan)


def _restarts(plan: Plan) -> Iterator[tuple[Any, int]]:
    """Start and seed of each run; where chance has no part in the start, it gets one later."""
    seeds = np.random.SeedSequence(plan.seed).generate_state(plan.n_init)
    yield plan.init, plan.seed
    for seed in seeds[1:]:
        yield ("random" if plan.init in _DETERMINED else plan.init), int(seed)


def _once(V: Dense | Sparse, plan: Plan, init: Any, seed: int, started: float) -> Result:
    start = plan.start if init == "custom" else None
    if plan.known is not None:
        start, init = _around(V, plan, init, seed, start), "custom"
    left = None
    if plan.time_limit is not None:
        left = max(plan.time_limit - (time.perf_counter() - started), 1e-9)
    all_known = plan.known is not None and bool(plan.known.mask.all())
    result = factorize(
        V,
        plan.rank,
        init=init,
        solver=plan.solver,
        accelerator=plan.accelerator,
        max_iter=0 if all_known else plan.max_iter,
        tol=plan.tol,
        time_limit=left,
        random_state=seed,
        W=None if start is None else start.W,
        H=None if start is None else start.H,
        callback=plan.callback,
        asked=plan.asked,
        watch=plan.watch,
    )
    return replace(result, status=Status.CONVERGED) if all_known else result


def _around(V: Dense | Sparse, plan: Plan, init: Any, seed: int, start: Factors | None) -> Factors:
    """A start with the known components in their places, and W exact for it."""
    assert plan.known is not None
    rows, mask = (t.to(V.device) for t in plan.known)
    H = torch.empty(V.shape[1], plan.rank, dtype=V.dtype, device=V.device)
    free = int((~mask).sum())
    if start is not None:
        H = start.H.to(H).clone()
    elif free:
        _, found = starting_point(V, free, init=init, random_state=seed)
        H[:, ~mask] = found
    H[:, mask] = rows.mT.to(H)
    return Factors(Coder.of(H, plan.asked.W)(V), H)


def _tidy(V: Dense | Sparse, result: Result, plan: Plan) -> tuple[Result, Coder]:
    """Bring components into order and scale, and make W the exact answer to them.

    A start that the user gave keeps its order and scale, and penalties have a scale of their own.
    Where time ran out, or somebody interrupted, W is left as it is.
    """
    x = result.factors
    if plan.start is None and plan.known is None:
        if plan.order is not None:
            order = by_share(x)
            x = Factors(x.W[:, order], x.H[:, order])
        if plan.scale is not None and plan.asked.has_no_penalty:
            x = balanced(x) if plan.scale == "balanced" else summing_to_one(x)
    if plan.known is not None:
        rows, mask = (t.to(V.device) for t in plan.known)
        x = Factors(x.W, x.H.clone())
        x.H[:, mask] = rows.mT.to(x.H)
    coder, known = Coder.of(x.H, plan.asked.W), plan.known is not None
    if result.status in (Status.TIME_LIMIT, Status.INTERRUPTED) or not (result.n_iter or known):
        return replace(result, factors=x), coder
    x = Factors(coder(V), x.H)
    return replace(result, factors=x, error=rmse(V, x)), coder


def learn(
    V: Dense | Sparse,
    H: Float[Tensor, "n r"],
    coder: Coder,
    past: Statistics,
    penalties: Penalties,
    fixed: Bool[Tensor, " r"] | None,
    kept: float | int,
) -> tuple[Float[Tensor, "n r"], Coder, float, Statistics]:
    """Go on from H with a batch of rows: the new H, its coder, ‖W Hᵀ − V‖ of the batch, the past.

    W is exact for the batch and H; then H follows, `past` having the weight `kept`.
    """
    past = past.after(V.to(torch.float64), coder(V).double(), kept)
    H = past.update(H.double(), penalties.on_H(past.n_rows, fixed)).to(V.dtype)
    coder = Coder.of(H, penalties.on_W(V.shape[1]))
    error = float(rmse(V, Factors(coder(V), H))) * math.sqrt(math.prod(V.shape))
    return H, coder, error, past


def rmse(V: Dense | Sparse, x: Factors) -> Float[Tensor, ""]:
    """‖W Hᵀ − V‖ / √(mn); of V divided by its mean where squares would not be numbers."""
    problem = Problem(V, x.W.shape[1])
    mean, root = float(problem.mean()), torch.finfo(V.dtype).max ** 0.25
    if mean and not 1 / root < mean < root:
        problem, unit = problem.normalized()
        return unit * rmse(problem.V, x.scale(1 / unit))  # type: ignore[arg-type]
    return (problem.sq_error(x) / (V.shape[0] * V.shape[1])).sqrt()


def warn_where_it_matters(V: Dense | Sparse, result: Result, plan: Plan) -> None:
    """Warn of an end before convergence, if the error was still falling visibly."""
    if result.status is Status.INTERRUPTED:
        warnings.warn(
            "The fit was interrupted: the model is fitted with the best factors so far.",
            ConvergenceWarning,
            stacklevel=4,
        )
    if result.status is Status.MAX_ITER and plan.tol and _falling(V, result.trace):
        warnings.warn(
            f"Maximum number of iterations {plan.max_iter} reached. Increase it to improve "
            f"convergence: over the last ones the error fell by more than {100 * _VISIBLE:g} % of "
            "the data.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _falling(V: Dense | Sparse, trace: Trace) -> bool:
    errors, size = trace.rmse[-1 - _LAST :], float(V.sq_norm()) / math.prod(V.shape)
    return bool(errors[0] - errors[-1] > _VISIBLE * math.sqrt(size))
