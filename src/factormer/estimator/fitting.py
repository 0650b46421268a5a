"""From the parameters of the estimator to a request, and from a result to its attributes."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from factormer.data import Blocks, Matrix
from factormer.data.intake import as_tensor
from factormer.data.journal import keep_passes
from factormer.data.keywords import check_callable, check_limits, check_room
from factormer.data.warn import warn
from factormer.estimator.options import (
    Asked,
    Known,
    check_poles,
    init_of,
    is_whole,
    loss_of,
    rank_of,
    seed_of,
    start_array,
    warn_of_zeros,
)
from factormer.problem.error import rmse
from factormer.problem.problem import Problem
from factormer.run.request import Request
from factormer.run.result import Result, Status
from factormer.run.settle import coefficients


def seeded(options: Any, V: Matrix) -> AbstractContextManager[int]:
    """The seed of a fit; that of the folder that keeps its passes meanwhile, if none was given."""
    seed = seed_of(options.random_state)
    if options.folder is None or not isinstance(V, Blocks):
        return nullcontext(seed)
    return keep_passes(V, options.folder, seed if is_whole(options.random_state) else None)


def request_of(
    options: Any, V: Matrix, W: Any, H: Any, before: Any, seed: int, rank: int | None = None
) -> Request:
    """The request of an estimator's parameters; `before` are components to continue from, and
    `rank` their number where it was selected.
    """
    m, n = V.shape
    loss, asked = loss_of(options.beta_loss, options.solver), Asked.read(options)
    check_limits(options.max_iter, options.tol, options.time_limit)
    check_callable("callback", options.callback)
    custom = isinstance(options.init, str) and options.init == "custom"
    if not custom and (W is not None or H is not None):
        warn(
            "When init!='custom', provided W or H are ignored. Set init='custom' to use them as "
            "initialization.",
            RuntimeWarning,
        )
        W = H = None
    rank = rank_of(options.n_components, n, H) if rank is None else rank
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
    left = right = None
    if custom:
        rows = as_tensor(start_array(H, (rank, n), "H"), name="H", device=None)
        right = rows.mT.to(V.device, V.dtype)
        if W is None and (warm or known is not None):
            limit = options.time_limit
            until = None if limit is None else time.perf_counter() + limit
            left = coefficients(V, right, loss, on_w, until=until).W
        else:
            left = as_tensor(start_array(W, (m, rank), "W"), name="W", device=None)
        left = left.to(right)
    init = "custom" if custom else init_of(options.init, rank, (m, n))
    warn_of_zeros(options.solver, init)
    return Request.of(
        V,
        rank,
        loss=loss,
        regularize_W=on_w.terms,
        regularize_H=on_h.terms,
        symmetric=bool(options.symmetric),
        init=init,
        W=left,
        H=right,
        solver=options.solver,
        accelerator=options.accelerator,
        max_iter=options.max_iter,
        tol=options.tol,
        time_limit=options.time_limit,
        random_state=seed,
        n_init=options.n_init,
        order=options.order,
        scale=options.scale,
        engine=options.engine,
        safeguard=options.safeguard,
        stop=options.stop,
    )


def reconstruction_error(request: Request, result: Result) -> float:
    """√(2 Σ ω d(X, W H)), as scikit-learn has it: ‖X − W H‖ for the squared error."""
    V = request.problem.V
    if request.problem.is_plain:
        return float(result.rmse) * math.sqrt(math.prod(V.shape))
    problem = Problem(V, request.problem.rank, request.loss)
    return float(rmse(problem, result.factors)) * math.sqrt(float(problem.size()))


def warn_of_the_end(result: Result, request: Request) -> None:
    """Warn of an end before convergence, unless tol is 0."""
    limits = request.limits
    if result.status is Status.INTERRUPTED:
        warn(
            "The fit was interrupted: the model is fitted with the best factors so far.",
            ConvergenceWarning,
        )
    if result.status is Status.TIME_LIMIT and (limits.tol or request.is_settled):
        warn(
            f"The time limit of {limits.time_limit:g} s was reached before the tolerance was met. "
            "Raise time_limit to improve convergence, or tol to accept a rougher fit.",
            ConvergenceWarning,
        )
    if result.status is Status.MAX_ITER and limits.tol and limits.max_iter:
        warn(
            f"Maximum number of iterations {limits.max_iter} reached. Increase it to improve "
            "convergence, or tol to accept a rougher fit.",
            ConvergenceWarning,
        )
