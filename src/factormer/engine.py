"""factorize(): the engine without the estimator."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factormer import presets
from factormer.kernels.threads import threads
from factormer.nnls import Coder
from factormer.problem import Problem
from factormer.solve import (
    Result,
    Rounding,
    Row,
    Stage,
    Stalled,
    Stationary,
    StopRule,
    TimeBudget,
    Watch,
    any_of,
    solve_in_stages,
    watched,
)
from factormer.terms import NOTHING, Asked
from factormer.validate import (
    as_factors,
    as_matrix,
    as_rank,
    as_seed,
    as_tensor,
    check_limits,
    check_mean,
    like,
)


def factorize(
    V: Any,
    rank: int,
    *,
    init: str | Path = "auto",
    solver: str = "auto",
    accelerator: str | Path | None = "auto",
    max_iter: int = 200,
    tol: float = 1e-4,
    time_limit: float | None = None,
    device: str | None = None,
    random_state: int | None = 0,
    W: Any = None,
    H: Any = None,
    callback: Callable[[Row], object] | None = None,
    asked: Asked = NOTHING,
    watch: Watch | None = None,
) -> Result:
    """Factorise V ≈ W Hᵀ with W, H ≥ 0, to the least squared error.

    Parameters
    ----------
    V : array-like, sparse matrix or tensor, (m, n)
        Finite, not negative; a tensor of three or more axes is a stack of matrices. Sparse data,
        scipy's or torch's, is never made dense.
    rank : int
        Number of components r.
    init : str
        "auto", "random", "merged" (more components of chance than wanted, merged in pairs),
        "nndsvd", "nndsvda", "rotated" (the SVD turned toward the orthant), "init-r10" or
        "init-r10-paper" (learned, rank 10), the path of a network of your own, or "custom" with `W`
        and `H`.
    solver : str
        "auto", "her" (accelerated HALS, extrapolated with restart), "her-admm" (ADMM likewise, for
        stacks and GPUs), "hals", "mu" (multiplicative updates), "ao-admm" (the paper's: ρ = 1 on V
        of mean 1), or "ao-admm-trace" (ρ = tr/r).
    accelerator : str or None
        "auto", None, "accel-r10" (learned, rank 10), or the path of a network of your own.
    max_iter : int
        Outer iterations at most; one is an update of H and one of W.
    tol : float
        Stop once the projected gradient is this small beside its size at the start; 0: never.
    time_limit : float, optional
        Seconds, start included; looked at after each iteration, and the start is not cut short.
    device : str, optional
        "cpu", "cuda", …; by default where V is.
    random_state : int, optional
        Seed of the random choices; None draws a new one.
    W, H : array-like, (m, r) and (n, r), optional
        The start, with init="custom".
    callback : callable, optional
        Called after each iteration with its row of the trace; Ctrl-C, or a KeyboardInterrupt it
        raises, ends the run with the best point so far.
    asked : Asked, optional
        Penalties on the factors, and columns of them that are to stay as the start has them. With
        penalties the errors of the trace, squared, are twice the loss, a share of each entry.
    watch : callable, optional
        Called after each iteration with the factors and the trace; ends the run where it says True.

    Returns
    -------
    Result
        W (m, r), H (n, r), status and trace; the best point that was seen. W and H are tensors
        where V is one, and numpy arrays otherwise.

    Notes
    -----
    V is divided by its mean and the factors are scaled back, so nothing depends on the unit of V.
    """
    check_limits(max_iter, tol, time_limit)
    started = time.perf_counter()
    matrix = as_matrix(V, device=device)
    problem, mean = Problem(matrix, as_rank(rank), asked).normalized()
    check_mean(mean)
    custom = None if W is None and H is None else as_factors(W, H, matrix, problem.rank)
    engine = presets.solver(solver, accelerator, matrix)
    rules: list[StopRule] = [Stationary(tol)]
    if time_limit is not None:
        rules.append(TimeBudget(time_limit, since=started))
    if watch is not None:
        rules.append(watched(watch, mean))
    with torch.no_grad(), threads():
        rng = _generator(as_seed(random_state))
        stages = [Stage(problem, max_iter, any_of(*rules))]
        free = asked.H.fixed is None and not presets.is_network(init)
        if solver == "auto" and accelerator in (None, "auto") and free:
            single = presets.in_single_precision(problem)
            if single is not None:
                stages.insert(0, Stage(single, max_iter, any_of(*rules, Rounding())))
            coarse = presets.compressed(problem, rng, max_iter=max_iter)
            if coarse is not None:
                stages.insert(0, Stage(*coarse, any_of(*rules, Stalled()), exact=False))
        start = presets.initializer(
            init,
            stages[0].problem.V,
            problem.rank,
            None if custom is None else custom.scale(1 / mean),
        )
        result = solve_in_stages(
            stages,
            engine,
            start(stages[0].problem, rng),
            started=started,
            stride=1 if watch else 10 if tol or time_limit else 500,
            callback=callback and (lambda row: callback(row._replace(rmse=mean * row.rmse))),
        )
    error = result.error if problem.is_plain else problem.rmse(result.factors).double()
    return Result(
        result.factors.scale(mean),
        result.status,
        result.trace.scaled(mean),
        mean * error,
        as_given=like(V),
    )


def coefficients(V: Any, H: Any) -> Tensor:
    """The W ≥ 0 that fits V ≈ W Hᵀ best for a given H, exactly (eq. 8, transposed)."""
    return Coder.of(as_tensor(H, name="H", device=None))(as_matrix(V))


def starting_point(
    V: Any,
    rank: int,
    *,
    init: str | Path = "auto",
    device: str | None = None,
    random_state: int | None = 0,
) -> tuple[Any, Any]:
    """The start W (m, r), H (n, r) that `factorize` would take for this `init`, and no iteration.

    Arrays of the kind that V is, as `Result.W` and `Result.H` are.
    """
    matrix = as_matrix(V, device=device)
    problem, mean = Problem(matrix, as_rank(rank)).normalized()
    check_mean(mean)
    with torch.no_grad(), threads():
        start = presets.initializer(init, problem.V, problem.rank)
        x = start(problem, _generator(as_seed(random_state))).scale(mean)
    return like(V)(x.W), like(V)(x.H)


def _generator(seed: int | None) -> torch.Generator:
    rng = torch.Generator()
    return rng.manual_seed(rng.seed() % 2**63 if seed is None else seed)
