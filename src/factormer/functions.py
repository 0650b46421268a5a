"""factorize() and related functions on arrays, without the estimator."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from factormer.data.intake import as_matrix, like
from factormer.data.journal import keep_if_blocks
from factormer.data.keywords import as_rank, check_callable, check_limits
from factormer.data.observations import observe
from factormer.data.warn import warn
from factormer.kernels.threads import threads
from factormer.many.folder import Sweep
from factormer.many.jobs import COMMON, Jobs, jobs_of
from factormer.many.ragged import Ragged
from factormer.many.results import Batch, Results
from factormer.many.run import batches
from factormer.problem.loss import Loss
from factormer.problem.penalties import Penalties, Volume
from factormer.run.choose import choose
from factormer.run.execute import execute, starting_factors
from factormer.run.hints import check_shared, hinted
from factormer.run.plan import Explanation
from factormer.run.request import Request, check_choice, check_count
from factormer.run.result import Result, Status
from factormer.run.stop import Watch
from factormer.run.trace import Row
from factormer.run.watch import counted
from factormer.sentence import Sentence


@hinted
@threads()  # everything: torch's own threads, once started, would hang in a forked process
def factorize(
    V: Any,
    rank: int,
    *,
    init: str | Path = "auto",
    solver: str = "auto",
    accelerator: str | Path | None = "auto",
    max_iter: int = 500,
    tol: float | int = 1e-4,
    stop: str = "auto",
    time_limit: float | int | None = None,
    device: str | None = None,
    random_state: int | None = 0,
    W: Any = None,
    H: Any = None,
    callback: Callable[[Row], object] | None = None,
    loss: str | float | Loss = "frobenius",
    mask: Any = None,
    weights: Any = None,
    missing: str | None = None,
    regularize_W: Any = None,
    regularize_H: Any = None,
    symmetric: bool = False,
    n_init: int = 1,
    order: str | None = "share",
    scale: str | None = "balanced",
    engine: str = "auto",
    safeguard: str = "descent",
    watch: Watch | None = None,
    memory_limit: float | str | None = None,
    folder: str | Path | None = None,
) -> Result:
    """Factorize V ≈ W Hᵀ with W, H ≥ 0, to the least squared error, or to another loss.

    Parameters
    ----------
    V : array-like, sparse matrix, tensor, or file or store of rows, (m, n)
        Not negative, not infinite; NaN in dense data is an entry that is not known. Sparse data,
        scipy's or torch's, is never made dense. Of an AnnData, X is meant. A numpy.memmap, an HDF5
        or Zarr array, a ParquetFile, or X of a backed AnnData, is read in blocks of rows if it does
        not fit into `memory_limit`. An array of three or more axes is a stack of matrices, with a
        FutureWarning: the next release refuses it here, and `factorize_many` takes it.
    rank : int
        Number of components r.
    init : str
        "auto", "random", "merged" (more random components than needed, merged in pairs),
        "nndsvd", "nndsvda", "nndsvdar", "rotated" (the SVD turned toward the orthant), "separable"
        (rows that others are mixtures of), "vertices" (rows that are corners of the largest
        simplex), "init-r10" or "init-r10-paper" (learned, rank 10), the path of a network of your
        own, or "custom" with `W` and `H`.
    solver : str
        "auto", "her" (accelerated HALS, extrapolated with restart), "ahead" (that, and between two
        passes over V more iterations on a small approximation), "her-admm" (ADMM likewise, for
        stacks and GPUs), "hals" (also by scikit-learn's name, "cd"), "mu" (multiplicative updates),
        "ao-admm" (the paper's: ρ = 1 on V of mean 1), or "ao-admm-trace" (ρ = tr/r).
    accelerator : str or None
        "auto", None, "any-rank", "accel-r10" or "accel-r10-paper" (learned; the latter two only for
        rank 10), or the path of a network of your own.
    max_iter : int
        Outer iterations at most; one is an update of H and one of W.
    tol : float
        The relative error that may be left ungained: stop once half as many iterations again would
        lower the error by less than `tol` of it, at the pace of the last ones, or once the error is
        a thousandth of `tol` times the size of V; 0: never.
    stop : {"auto", "gradient", "sklearn"}
        "auto": by `tol` as above (data beyond memory: "gradient"). "gradient": once the projected
        gradient is `tol` times that of the start. "sklearn": once ten iterations lower the error by
        less than `tol` times the error of the start, as scikit-learn's multiplicative updates do:
        sooner, and less surely at an end.
    time_limit : float, optional
        Seconds, start included. The core reads the clock within its products. The reference reads
        it as often as it calls `watch`, and makes its start to the end.
    device : str, optional
        "cpu", "cuda", …; by default where V is.
    random_state : int, optional
        Seed of the random choices; None draws a new one.
    W, H : array-like, (m, r) and (n, r), optional
        The start, with init="custom".
    callback : callable, optional
        Called with each row of the trace, in order; rows come several at a time, and those of
        several runs one run after another. Ctrl-C, or a KeyboardInterrupt that it raises, ends the
        run with the best point so far.
    loss : str, float or Loss
        "frobenius", "kullback-leibler", "itakura-saito", or the β of a β-divergence (2, 1, 0 are
        these). β ≤ 0 forbids zeros in V. Or a loss of your own (docs/losses.md).
    mask : array-like or sparse matrix, (m, n), optional
        True where an entry of V is known. NaN in V is not known either.
    weights : array-like or sparse matrix, (m, n), or (m,) for rows, optional
        How much an entry counts, at least 0; 1/σ² for entries with standard deviations σ. What
        sparse weights do not store is not known.
    missing : "zeros", optional
        Zeros of V are not known (ratings).
    regularize_W, regularize_H : Penalty or several, optional
        Of factormer.penalties: L1, L2, Group, Smooth, Orthogonal, Volume; Simplex, Bounds, Free,
        Fixed; or of your own.
        They are added to the loss (half the squared error, or the divergence), in the unit of V.
    symmetric : bool
        V ≈ H Hᵀ, for V = Vᵀ.
    n_init : int
        Runs from different starts, of which the best is kept. The core makes all of them for a
        while, and only the better ones to their ends.
    order : {"share", None}
        Components by their share of the sum of W Hᵀ, the largest first; None: unchanged.
    scale : {"balanced", "sum", None}
        Components with ‖w_c‖ = ‖h_c‖, or h_c of sum 1; None: unchanged. Given starts keep order
        and scale; penalties fix the scale.
    engine : {"auto", "core", "reference"}
        "core": compiled, for the squared error of one matrix on a CPU; "reference": in Python, for
        every loss, penalty and device, and slower. "auto" takes the core wherever it serves, and
        `explain` says whether it does.
    safeguard : {"descent", "always"}
        Which proposals of a network for one rank are taken. "descent": those from which an
        iteration leads no higher than from the solver's own point; a plain run goes on beside, and
        the better counts. "always": all, as in the paper. `Result.proposals` counts them.
    watch : callable, optional
        Called with the factors (gathered where W stays on Dask workers) and the trace: by the core
        every five iterations and at the end of a stage, by the reference after each iteration on
        large problems, 10 at most on small ones, and 500 at most with tol=0. True ends the run.
    memory_limit : float or str, optional
        Bytes, or text such as "4GB", that V, factors and sketches may take if V is in a file or
        store; by default half of the memory of the machine.
    folder : str or Path, optional
        Where to keep passes over V, if it is read in blocks. The same call again continues there,
        also after a kill or the loss of a cluster, with the same result. Other data is refused.
        With random_state=None the seed of the first call counts.

    Returns
    -------
    Result
        W (m, r), H (n, r), status and trace; the best point that was seen. W and H are tensors
        where V is one, and numpy arrays otherwise.

    Notes
    -----
    The unit of V does not matter, except to the weights of penalties.
    With another loss, unknown entries, weights or penalties, the solvers are "newton", "mu",
    "mu-extrapolated", "hals" (squared error only) and "ao-admm" (any penalty); L1, L2 and known
    columns alone leave "her" to the core. The any-rank networks are the only ones that serve there,
    and `trace.loss` is the objective (docs/losses.md).
    """
    started = time.perf_counter()
    check_callable("callback", callback)
    check_callable("watch", watch)
    matrix = observe(
        V, mask=mask, weights=weights, missing=missing, device=device, memory_limit=memory_limit
    )
    if len(matrix.shape) > 2:
        _warn_of_stack(tuple(matrix.shape))
    with keep_if_blocks(matrix, folder, random_state) as random_state:
        request = Request.of(
            matrix,
            rank,
            init=init,
            solver=solver,
            accelerator=accelerator,
            max_iter=max_iter,
            tol=tol,
            stop=stop,
            time_limit=time_limit,
            random_state=random_state,
            W=W,
            H=H,
            loss=loss,
            regularize_W=regularize_W,
            regularize_H=regularize_H,
            symmetric=symmetric,
            n_init=n_init,
            order=order,
            scale=scale,
            engine=engine,
            safeguard=safeguard,
        )
        request = with_volumes(request, started)
        (result,) = execute(choose(request), started=started, callback=callback, watch=watch)
    return replace(result, as_given=like(V))


def with_volumes(request: Request, started: float) -> Request:
    """Return the request with a weight for a `Volume()` that has none, from a fit without it.

    `started` is a reading of `time.perf_counter()`, from which a time limit counts for both fits.
    """
    problem = request.problem
    if problem.is_free:
        return request
    sides = {"on_w": problem.on_w.terms, "on_h": problem.on_h.terms}
    if all(getattr(term, "weight", 0) is not None for terms in sides.values() for term in terms):
        return request
    bare = {
        side: Penalties.of([term for term in terms if getattr(term, "weight", 0) is not None])
        for side, terms in sides.items()
    }
    plain = replace(request, problem=replace(problem, **bare), n_init=1)
    (result,) = execute(choose(plain), started=started)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if not math.isfinite(float(result.rmse)):
        raise ValueError(
            Sentence(
                "Volume() has no weight, and the time limit left none to find it by a fit without "
                "it: raise {time_limit}, or name the weight"
            )
        )
    misfit = float(result.rmse) ** 2 * math.prod(problem.V.shape) / 2
    found = {}
    for (side, terms), X in zip(sides.items(), result.factors, strict=True):
        suited = [term.suited(misfit, X) if isinstance(term, Volume) else term for term in terms]
        found[side] = Penalties.of(suited)
    return replace(request, problem=replace(problem, **found))


def _warn_of_stack(shape: tuple[int, ...]) -> None:
    """Say what an array of three axes is taken for, and what it may have been meant for."""
    *many, m, n = shape
    warn(
        f"V has shape {shape}, and is factorized as a stack of {math.prod(many)} separate matrices "
        f"of {m}×{n}. If that is meant, call factormer.factorize_many(V, rank); if V is one cube, "
        "such as an image with bands, make it a matrix first: V.reshape(-1, V.shape[-1]). The next "
        "release refuses arrays of three axes here.",
        FutureWarning,
    )


@overload
def factorize_many(
    problems: Any, ranks: Any = None, *, as_completed: Literal[False] = False, **options: Any
) -> Results: ...
@overload
def factorize_many(
    problems: Any, ranks: Any = None, *, as_completed: Literal[True], **options: Any
) -> Iterator[tuple[int, Result]]: ...
def factorize_many(
    problems: Any,
    ranks: Any = None,
    *,
    grid: bool | None = None,
    n_init: int = 1,
    resample: str | None = None,
    as_completed: bool = False,
    progress: bool = False,
    time_limit: float | int | None = None,
    random_state: int | Sequence[int] | np.ndarray | None = 0,
    device: str | Sequence[str] | None = None,
    missing: str | None = None,
    folder: str | Path | None = None,
    memory_limit: float | str | None = None,
    **options: Any,
) -> Results | Iterator[tuple[int, Result]]:
    """Factorize many matrices, or one at many ranks and from many starts, all at once.

    Parameters
    ----------
    problems : list of matrices, `Ragged`, stack (problems, m, n), or one matrix
        Matrices may differ in shape and kind. One matrix is factorized at every rank of `ranks`.
    ranks : int or list of int
        For a list or a stack: one rank for all, or several, see `grid`. For one matrix: all to try.
    grid : bool, optional
        Of several matrices and several ranks: True takes every rank for every matrix, False the
        rank in the place of the matrix. Without it they are paired too, with a FutureWarning.
    n_init : int
        Runs of each, of which all are kept. If there are several, they begin at random starts
        unless `init` names another.
    resample : {"poisson", "bootstrap"}, optional
        Draw new data for each run: entries with the mean they have, or rows, with repeats.
    as_completed : bool
        Return an iterator over pairs of index and `Result`, in the order in which they end.
    progress : bool
        Show a bar, and how long it will take; not with `as_completed`.
    time_limit : float, optional
        Seconds for all, from the call on; what is done by then is returned, and what is under way
        is cut short, except on the chip of a GPU, where problems take milliseconds.
    random_state : int or list of int, optional
        Job k, in the order of the results, has the seed random_state + k; None draws a first one.
        A list has the seed of each job.
    device : str or list of str, optional
        With several, or "gpus" for all that torch sees, jobs are shared out by their work, and
        results stay where they were made. This one and `missing` are as in `factorize` otherwise.
    folder : str or Path, optional
        Where to keep results as they end. The same call again continues there, also after a kill;
        processes that make it at once share the work. Other data, ranks, seeds or options are
        refused. With random_state=None the seeds of the first call count.
    memory_limit : float or str, optional
        As in `factorize`. If V is beyond it, all ranks and runs share one sketch, and each pass
        over V serves all that are under way (docs/howto/large.md).
    **options
        Other keywords of `factorize`: init, solver, accelerator, max_iter, tol, stop, loss,
        regularize_W, regularize_H, symmetric, order, scale, engine, safeguard.

    Returns
    -------
    Results
        A sequence of `Result` in the order given, by problem, rank and run, with `table()`. Each is
        what `factorize` with its seed would return: on a CPU bit for bit, on the chip of a GPU to
        1e-3 of the error for most (docs/howto/many.md). Jobs of one V beyond memory share a sketch,
        so they differ from single calls. Ctrl-C returns what is done.
    """
    until = None if time_limit is None else time.perf_counter() + _seconds(time_limit)
    check_shared("factorize_many", options, COMMON)
    paired, every = _ranks_of_grid(problems, ranks, grid)
    check_count("n_init", n_init)
    with threads():
        jobs = jobs_of(
            problems,
            paired,
            n_init=n_init * max(len(every), 1),
            resample=resample,
            random_state=random_state,
            missing=missing,
            device=device,
            memory_limit=memory_limit,
            options=options,
        )
        if every:
            jobs = _every_rank(jobs, every, n_init, options)
        jobs.plan(0)  # which refuses what cannot be done
    if as_completed and progress:
        raise ValueError("as_completed=True shows no progress: leave out progress, and count")
    if folder is None:
        run = batches(jobs, until=until)
    else:
        sweep = Sweep.opened(_folder(folder), jobs, is_seeded=random_state is not None)
        jobs, run = sweep.jobs, sweep.batches(until=until)
    if as_completed:
        return _as_completed(run)
    results = Results(jobs)
    with counted(progress, len(jobs)) as count:
        try:
            with closing(run) as ended:  # which stops the threads
                for batch in ended:
                    results.add(batch)
                    count(len(batch.indices))
        except KeyboardInterrupt:
            results.status = Status.INTERRUPTED
    if until is not None and results.status is None and not results.done.all():
        results.status = Status.TIME_LIMIT
    return results


def _ranks_of_grid(problems: Any, ranks: Any, grid: Any) -> tuple[Any, list[Any]]:
    """Return the ranks with which problems are paired, and those that every problem is to have.

    Of the latter there are none unless several problems meet a list of ranks with grid=True.
    """
    check_choice("grid", grid, (True, False, None))
    if hasattr(ranks, "__array__"):
        ranks = np.asarray(ranks).tolist()
    elif isinstance(ranks, Iterable) and not isinstance(ranks, str):
        ranks = list(ranks)
    several = isinstance(problems, list | tuple | Ragged) or getattr(problems, "ndim", 2) > 2
    if not several or not isinstance(ranks, list) or not ranks:
        return ranks, []
    if grid:
        return ranks[0], ranks
    count = len(problems)
    if len(ranks) != count:
        raise ValueError(
            f"ranks has {len(ranks)} numbers for {count} problems; pass one for each, or one for "
            "all, or grid=True for every rank of every problem"
        )
    if grid is None and count > 1:
        warn(
            f"factorize_many got {count} matrices and as many ranks, and pairs them: the first "
            "matrix with the first rank, and so on. Say grid=False if that is meant, and grid=True "
            "for every rank of every matrix; the next release asks for one of them.",
            FutureWarning,
        )
    return ranks, []


def _every_rank(jobs: Jobs, ranks: list[Any], n_init: int, options: dict[str, Any]) -> Jobs:
    """Jobs at every rank for every problem, of as many that were read as runs of one rank."""
    asked = [as_rank(rank) for rank in ranks]
    count = len(jobs) // (len(asked) * n_init)
    rank = np.tile(np.repeat(asked, n_init), count)
    run = np.tile(np.arange(n_init), count * len(asked))
    shared = jobs.options if n_init > 1 else options  # replicates begin at random starts
    return replace(jobs, rank=rank, run=run, options=shared)


def _as_completed(run: Generator[Batch, None, None]) -> Iterator[tuple[int, Result]]:
    with closing(run) as ended:
        for batch in ended:
            for place, index in enumerate(batch.indices):
                yield int(index), batch.result(place)


def _folder(folder: Any) -> Path:
    if not isinstance(folder, str | Path) or not str(folder):
        raise ValueError(f"folder is {folder!r}; it must be the path of a folder, or None")
    return Path(folder)


def _seconds(time_limit: float | int) -> float:
    check_limits(1, 0.0, time_limit)
    return float(time_limit)


@hinted
@threads()
def explain(
    V: Any,
    rank: int,
    *,
    device: str | None = None,
    mask: Any = None,
    weights: Any = None,
    missing: str | None = None,
    memory_limit: float | str | None = None,
    **options: Any,
) -> Explanation:
    """Say what `factorize` would do with these arguments, and why, without factorizing. Print it.

    `options` are keywords of `factorize`. The same is in `result.plan` of each result.
    """
    matrix = observe(
        V, mask=mask, weights=weights, missing=missing, device=device, memory_limit=memory_limit
    )
    return choose(Request.of(matrix, rank, **options)).explanation


@threads()
def starting_point(
    V: Any,
    rank: int,
    *,
    init: str | Path = "auto",
    device: str | None = None,
    random_state: int | None = 0,
) -> tuple[Any, Any]:
    """The start W (m, r), H (n, r) of this `init`, without iterations.

    Arrays of the same kind as V, like `Result.W` and `Result.H`.
    """
    request = Request.of(as_matrix(V, device=device), rank, init=init, random_state=random_state)
    x = starting_factors(choose(request))
    return like(V)(x.W), like(V)(x.H)
