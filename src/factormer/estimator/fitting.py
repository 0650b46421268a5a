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
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from factormer.data import Matrix
from factormer.data.factors import Factors
from factormer.data.intake import as_tensor, check_callable, check_limits, check_room
from factormer.estimator.coding import coefficients, plain_rmse
from factormer.estimator.options import (
    ORDERS,
    SCALES,
    Asked,
    Known,
    check_choice,
    check_count,
    check_poles,
    init_of,
    loss_of,
    rank_of,
    start_array,
    warn_of_zeros,
)
from factormer.functions import factorize
from factormer.kernels.threads import threads
from factormer.problem.losses import Beta
from factormer.problem.objective import Objective
from factormer.problem.penalties import Penalties
from factormer.run import general
from factormer.run.order import canonical
from factormer.run.solve import Result, Status, Watch
from factormer.run.trace import Row

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
    loss: Beta
    on_w: Penalties
    on_h: Penalties
    symmetric: bool
    order: str | None
    scale: str | None
    start: Factors | None
    callback: Callable[[Row], object] | None


def make_plan(options: Any, V: Matrix, W: Any, H: Any, before: Any, seed: int) -> Plan:
    """Read the parameters of an estimator; `before` are its components, to go on from if asked."""
    m, n = V.shape
    loss, asked = loss_of(options.beta_loss, options.solver), Asked.read(options)
    check_limits(options.max_iter, options.tol, options.time_limit)
    check_choice("order", options.order, ORDERS)
    check_choice("scale", options.scale, SCALES)
    check_count("n_init", options.n_init)
    check_callable("callback", options.callback)
    custom = isinstance(options.init, str) and options.init == "custom"
    if not custom and (W is not None or H is not None):
        warnings.warn(
            "When init!='custom', provided W or H are ignored. Set init='custom' to use them as "
            "initialization.",
            RuntimeWarning,
            stacklevel=6,
        )
        W = H = None
    rank = rank_of(options.n_components, n, H)
    check_room(V, rank)
    fits = before is not None and tuple(before.shape) == (rank, n)
    warm = options.warm_start and fits and bool((before != 0).any())  # zeros would stay zeros
    if warm and H is None:
        H, custom = before, True
    known = Known.read(options.fixed_components, rank, n, H if custom else None)
    if known is not None and options.accelerator not in (None, "auto"):
        raise ValueError(
            f"accelerator is {options.accelerator!r}, and networks move every component; with "
            "fixed_components choose accelerator=None"
        )
    on_w, on_h = asked.on_W(n), asked.on_H(m, known)
    check_poles(V, loss)
    start = None
    if custom:
        rows = as_tensor(start_array(H, (rank, n), "H"), name="H", device=None)
        right = rows.mT.to(V.device, V.dtype)
        if W is None and (warm or known is not None):
            left, _ = coefficients(V, right, loss, on_w)
        else:
            left = as_tensor(start_array(W, (m, rank), "W"), name="W", device=None)
        start = Factors(left.to(right), right)
    init = "custom" if custom else init_of(options.init, rank, (m, n))
    warn_of_zeros(options.solver, init)
    return Plan(
        rank=rank,
        init=init,
        solver=options.solver,
        accelerator=options.accelerator,
        max_iter=options.max_iter,
        tol=float(options.tol),
        time_limit=None if options.time_limit is None else float(options.time_limit),
        seed=seed,
        n_init=options.n_init,
        loss=loss,
        on_w=on_w,
        on_h=on_h,
        symmetric=bool(options.symmetric),
        order=options.order,
        scale=options.scale,
        start=start,
        callback=options.callback,
    )


@torch.no_grad()
def fit(V: Matrix, plan: Plan, watch: Watch | None = None) -> Result:
    """The best of the restarts, tidied up."""
    started, best = time.perf_counter(), None
    with threads():
        for init, seed in _restarts(plan):
            result = _once(V, plan, init, seed, started, watch)
            if best is None or result.rmse < best.rmse:
                best = result
            late = plan.time_limit and time.perf_counter() - started >= plan.time_limit
            if late or result.status is Status.INTERRUPTED:
                best = replace(best, status=result.status if not late else Status.TIME_LIMIT)
                break
        assert best is not None
        until = None if plan.time_limit is None else started + plan.time_limit
        return _tidy(_settled(V, best, plan, until), plan)


def _restarts(plan: Plan) -> Iterator[tuple[Any, int]]:
    """Start and seed of each run; where chance has no part in the start, it gets one later."""
    yield plan.init, plan.seed
    more = plan.n_init - 1
    for seed in np.random.SeedSequence(plan.seed).generate_state(more + 1)[1:] if more else ():
        yield ("random" if plan.init in _DETERMINED else plan.init), int(seed)


def _once(
    V: Matrix, plan: Plan, init: Any, seed: int, started: float, watch: Watch | None
) -> Result:
    start = plan.start if init == "custom" else None
    left = None
    if plan.time_limit is not None:
        left = max(plan.time_limit - (time.perf_counter() - started), 1e-9)
    result = factorize(
        V,
        plan.rank,
        init=init,
        solver=plan.solver,
        accelerator=plan.accelerator,
        max_iter=0 if plan.on_h.is_settled else plan.max_iter,
        tol=plan.tol,
        time_limit=left,
        random_state=seed,
        W=None if start is None else start.W,
        H=None if start is None else start.H,
        callback=plan.callback,
        loss=plan.loss.beta,
        regularize_W=plan.on_w.terms,
        regularize_H=plan.on_h.terms,
        symmetric=plan.symmetric,
        watch=watch,
    )
    return replace(result, status=Status.CONVERGED) if plan.on_h.is_settled else result


def _settled(V: Matrix, result: Result, plan: Plan, until: float | None) -> Result:
    """Make W the best for its components, which is what `transform` would find.

    Not where a number of iterations was asked for (tol = 0), where time ran out or somebody
    interrupted: then W is what the last iteration left. Nor where W and H are one factor, nor
    where the best iterate is better.
    """
    over = result.status in (Status.TIME_LIMIT, Status.INTERRUPTED) or plan.symmetric
    fixed = plan.on_h.is_settled
    if not fixed and (over or not plan.tol or not plan.max_iter):
        return result
    (W, H), tick = result.factors, time.perf_counter()
    try:
        W, n_iter = coefficients(V, H, plan.loss, plan.on_w, W, until=until)
    except KeyboardInterrupt:
        return replace(result, status=Status.INTERRUPTED)
    x = Factors(W, H)
    error = rmse(V, x, plan)
    if until is not None and time.perf_counter() >= until:
        result = replace(result, status=Status.TIME_LIMIT)
    better = bool(error <= result.error)
    if fixed:  # these are the iterations
        pace = (time.perf_counter() - tick) / max(n_iter, 1)
        last = (error if better else result.error) / result.trace.unit
        for _ in range(n_iter):
            result.trace.extend(last[None], pace)
    return replace(result, factors=x, error=error) if better else result


def _tidy(result: Result, plan: Plan) -> Result:
    """Bring components into order and scale.

    A start that the user gave, and known components, keep theirs; penalties have a scale of their
    own, and so has a factor that stands for both.
    """
    if plan.start is not None or plan.on_h.fixed is not None or plan.on_w.fixed is not None:
        return _placed(result, plan)
    free = plan.on_w.is_plain and plan.on_h.is_plain and not plan.symmetric
    x = canonical(result.factors, plan.order, plan.scale if free else None)
    return replace(result, factors=x)


def _placed(result: Result, plan: Plan) -> Result:
    """Known components to their last digit: scaling V and back has changed it."""
    W, H = result.factors
    return replace(result, factors=Factors(plan.on_w.placed(W), plan.on_h.placed(H)))


def rmse(V: Matrix, x: Factors, plan: Plan) -> Float[Tensor, ""]:
    """What a trace holds, at x: √(2·objective / entries)."""
    problem = general.objective(V, plan.rank, plan.loss, plan.on_w, plan.on_h)
    return plain_rmse(V, x) if problem is None else _scaled_rmse(problem, x)


def _scaled_rmse(problem: Objective, x: Factors) -> Float[Tensor, ""]:
    """√(2·objective / entries), by way of V divided by its mean, where squares are numbers."""
    scaled, mean = problem.normalized()
    return problem.unit(mean) * scaled.rmse(scaled.scaled_back(x, 1 / mean))


def reconstruction_error(V: Matrix, result: Result, plan: Plan) -> float:
    """√(2 Σ ω d(X, W H)), as scikit-learn has it: ‖X − W H‖ for the squared error."""
    if general.objective(V, plan.rank, plan.loss, plan.on_w, plan.on_h) is None:
        return float(result.rmse) * math.sqrt(math.prod(V.shape))
    problem, x = Objective(V, plan.rank, plan.loss), result.factors
    return float(_scaled_rmse(problem, x)) * math.sqrt(float(problem.size()))


def warn_of_the_end(result: Result, plan: Plan) -> None:
    """Warn of an end before convergence, unless a number of iterations was asked for."""
    if result.status is Status.INTERRUPTED:
        warnings.warn(
            "The fit was interrupted: the model is fitted with the best factors so far.",
            ConvergenceWarning,
            stacklevel=6,
        )
    if result.status is Status.MAX_ITER and plan.tol and plan.max_iter:
        warnings.warn(
            f"Maximum number of iterations {plan.max_iter} reached. Increase it to improve "
            "convergence, or tol to be content with less.",
            ConvergenceWarning,
            stacklevel=6,
        )
