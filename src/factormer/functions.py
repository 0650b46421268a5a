"""factorize(): the engine without the estimator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from factormer.accelerate.base import Judged
from factormer.data.intake import (
    as_factors,
    as_matrix,
    as_rank,
    as_seed,
    check_callable,
    check_limits,
    check_mean,
    check_room,
    check_start,
    like,
)
from factormer.data.observations import observe
from factormer.kernels.threads import threads
from factormer.problem.losses import Beta
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.run import general, presets
from factormer.run.multistart import Tournament
from factormer.run.solve import (
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


@threads()  # all of it: torch's own threads, once started, would hang in a forked process
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
    loss: str | float = "frobenius",
    mask: Any = None,
    weights: Any = None,
    missing: str | None = None,
    regularize_W: Any = None,
    regularize_H: Any = None,
    symmetric: bool = False,
    watch: Watch | None = None,
) -> Result:
    """Factorise V ≈ W Hᵀ with W, H ≥ 0, to the least squared error, or to another loss.

    Parameters
    ----------
    V : array-like, sparse matrix or tensor, (m, n)
        Not negative, not infinite; NaN in dense data is an entry that is not known. A tensor of
        three or more axes is a stack of matrices. Sparse data, scipy's or torch's, is never made
        dense.
    rank : int
        Number of components r.
    init : str
        "auto", "random", "merged" (more components of chance than wanted, merged in pairs),
        "nndsvd", "nndsvda", "nndsvdar", "rotated" (the SVD turned toward the orthant), "separable"
        (rows of V that the others are mixtures of), "init-r10" or "init-r10-paper" (learned, rank
        10), the path of a network of your own, or "custom" with `W` and `H`.
    solver : str
        "auto", "her" (accelerated HALS, extrapolated with restart), "ahead" (that, and between two
        readings of V more iterations on what they told of it), "her-admm" (ADMM likewise, for
        stacks and GPUs), "hals" (also by scikit-learn's name, "cd"), "mu" (multiplicative updates),
        "ao-admm" (the paper's: ρ = 1 on V of mean 1), or "ao-admm-trace" (ρ = tr/r).
    accelerator : str or None
        "auto", None, "any-rank" or "accel-r10" (learned; the latter for rank 10 alone), or the path
        of a network of your own.
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
    loss : str or float
        "frobenius", "kullback-leibler", "itakura-saito", or the β of a β-divergence (2, 1, 0 are
        these). β ≤ 0 forbids zeros in V.
    mask : array-like or sparse matrix, (m, n), optional
        True where an entry of V is known. NaN in V is not known either.
    weights : array-like or sparse matrix, (m, n), or (m,) for rows, optional
        How much an entry counts, at least 0; 1/σ² for entries with standard deviations σ. What
        sparse weights do not store is not known.
    missing : "zeros", optional
        Zeros of V are not known (ratings).
    regularize_W, regularize_H : Penalty or several, optional
        Of factormer.penalties: L1, L2, Group, Smooth, Orthogonal; Simplex, Bounds, Free, Fixed.
        They are added to the loss (half the squared error, or the divergence), in the unit of V.
    symmetric : bool
        V ≈ H Hᵀ, for V = Vᵀ.
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
    With another loss, weights or penalties the solvers are "newton", "mu", "mu-extrapolated",
    "hals" (squared error alone) and "ao-admm" (any penalty); there is no learned part, and
    `trace.loss` is the objective (docs/losses.md).
    """
    check_limits(max_iter, tol, time_limit)
    check_callable("callback", callback)
    check_callable("watch", watch)
    started = time.perf_counter()
    matrix, rank = (
        observe(V, mask=mask, weights=weights, missing=missing, device=device),
        as_rank(rank),
    )
    check_room(matrix, rank)
    custom = None if W is None and H is None else as_factors(W, H, matrix, rank)
    penalties = (
        Penalties.of(regularize_W, "regularize_W"),
        Penalties.of(regularize_H, "regularize_H"),
    )
    special = general.objective(matrix, rank, Beta.of(loss), *penalties)
    rules: list[StopRule] = [Stationary(tol)]
    if time_limit is not None:
        rules.append(TimeBudget(time_limit, since=started))
    stride = 1 if watch else 10 if tol or time_limit else 500
    if special is not None or symmetric:
        if special is not None and symmetric:
            raise ValueError(
                "symmetric=True goes with the squared error alone: leave out loss, mask, weights, "
                "missing and regularize_W, regularize_H"
            )
        if accelerator not in (None, "auto"):
            raise ValueError(
                f"accelerator is {accelerator!r}, which serves the plain squared error alone; with "
                "another loss, unknown entries, weights, penalties or symmetry leave it out"
            )
        with torch.no_grad():
            result = general.run(
                special or Problem(matrix, rank),
                init=init,
                name=solver,
                custom=custom,
                is_symmetric=symmetric,
                rules=rules,
                max_iter=max_iter,
                rng=_generator(as_seed(random_state)),
                started=started,
                callback=callback,
                watch=watch,
                stride=stride,
            )
        return replace(result, as_given=like(V))
    with torch.no_grad():
        problem, mean = Problem(matrix, rank).normalized()
        check_mean(mean)
        engine = presets.solver(solver, accelerator, problem)
        if watch is not None:
            rules.append(watched(watch, mean, mean))
        rng = _generator(as_seed(random_state))
        stages = [Stage(problem, engine, max_iter, any_of(*rules))]
        if solver == "auto" and isinstance(engine, Judged) and not presets.is_network(init):
            single = presets.in_single_precision(problem)
            if single is not None:
                stages.insert(0, Stage(single, engine, max_iter, any_of(*rules, Rounding())))
            coarse = presets.compressed(problem, rng, max_iter=max_iter, read=single)
            if coarse is not None:
                sketched, n_iter = coarse
                rule = any_of(*rules, Stalled())
                on_sketch = presets.solver(solver, accelerator, sketched)
                stages.insert(0, Stage(sketched, on_sketch, n_iter, rule, exact=False))
        first = stages[0].problem
        given = None if custom is None else check_start(custom.scale(1 / mean))
        start = presets.initializer(init, first.V, problem.rank, given)
        x0, *others = presets.candidates(start, first, rng)
        if others:
            tournament = Tournament(stages[0].solver, tuple(others))
            stages[0] = stages[0]._replace(solver=tournament)
        result = solve_in_stages(
            stages,
            x0,
            started=started,
            stride=stride,
            callback=callback and (lambda row: callback(row._replace(rmse=mean * row.rmse))),
        )
    return Result(
        result.factors.scale(mean),
        result.status,
        result.trace.scaled(mean),
        mean * result.error,
        as_given=like(V),
    )


@threads()
def starting_point(
    V: Any,
    rank: int,
    *,
    init: str | Path = "auto",
    device: str | None = None,
    random_state: int | None = 0,
) -> tuple[Any, Any]:
    """The start W (m, r), H (n, r) that this `init` gives, and no iteration.

    Arrays of the kind that V is, as `Result.W` and `Result.H` are.
    """
    matrix, rank = as_matrix(V, device=device), as_rank(rank)
    check_room(matrix, rank)
    problem, mean = Problem(matrix, rank).normalized()
    check_mean(mean)
    with torch.no_grad():
        start = presets.initializer(init, problem.V, problem.rank)
        x = start(problem, _generator(as_seed(random_state))).scale(mean)
    return like(V)(x.W), like(V)(x.H)


def _generator(seed: int | None) -> torch.Generator:
    rng = torch.Generator()
    return rng.manual_seed(rng.seed() % 2**63 if seed is None else seed)
