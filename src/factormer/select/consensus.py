"""consensus(): many runs, what they agree on, and how far."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from factormer.data import Matrix, draws
from factormer.data.factors import Factors
from factormer.data.intake import like
from factormer.data.keywords import as_seed, check_limits
from factormer.data.observations import observe
from factormer.functions import factorize_many
from factormer.many.resample import RESAMPLES
from factormer.problem.error import rmse
from factormer.run.hints import hinted
from factormer.run.order import canonical, shares
from factormer.run.request import Request, check_choice, check_count
from factormer.run.result import Result, Status
from factormer.run.settle import coefficients
from factormer.run.trace import Trace
from factormer.run.watch import counted
from factormer.select.agreement import Consensus, Matched
from factormer.select.connect import connected, tree_of
from factormer.select.match import Clusters, clustered
from factormer.sentence import Sentence

_COMPONENTS = ("refit", "medoid")
_SAMPLES = 2000  # rows of V, at most, in the consensus matrix
_FOR_RUNS = 0.9  # of the time limit; the rest is for what is made of them
_ENDED = (Status.CONVERGED, Status.MAX_ITER)


@hinted
def consensus(
    V: Any,
    rank: int,
    *,
    n_runs: int = 100,
    resample: str | None = None,
    components: str = "refit",
    init: str = "random",
    mask: Any = None,
    weights: Any = None,
    missing: str | None = None,
    device: str | None = None,
    random_state: int | None = 0,
    time_limit: float | int | None = None,
    progress: bool = False,
    **options: Any,
) -> Consensus:
    """Factorize V from many random starts, and find what the runs have in common.

    The components of all runs, the columns of H, are matched; runs unlike all others are dropped;
    what is left is one cluster of components for each of the r. Their medians, of length 1, are the
    consensus, to which W, H, and W again are fitted.

    Parameters
    ----------
    V : array-like, sparse matrix or tensor, (m, n)
        As in `factorize`; rows are samples.
    rank : int
        Number of components r.
    n_runs : int
        Runs, at least 2.
    resample : {"poisson", "bootstrap"}, optional
        Draw new data for each run: entries with the mean they have, or rows, with repeats. The
        spread of the runs is then an estimate of uncertainty, see `Consensus.bands`.
    components : {"refit", "medoid"}
        What to return: the medians of the clusters, fitted to V; or the run that is most like all
        others, as it is.
    init : str
        As in `factorize`; a start without randomness makes all runs the same.
    mask, weights, missing, device
        As in `factorize`.
    random_state : int, optional
        Run k has the seed random_state + k.
    time_limit : float, optional
        Seconds for all; the runs that are done by then count, at least 2. So it is after Ctrl-C.
    progress : bool
        Show a bar.
    **options
        Other keywords of `factorize_many`: loss, regularize_W, regularize_H, solver, max_iter, …

    Returns
    -------
    Consensus
        W, H, and for each component its `stability`; `matrix`, which samples go together;
        `table()`, `plot()`, `bands()`.
    """
    started = time.perf_counter()
    check_count("n_runs", n_runs, 2)
    check_limits(1, 0.0, time_limit)
    check_choice("resample", resample, RESAMPLES)
    check_choice("components", components, _COMPONENTS)
    if options.get("symmetric"):
        raise ValueError(
            Sentence("{symmetric} is True; consensus takes V ≈ W Hᵀ: leave {symmetric} out")
        )
    matrix = observe(V, mask=mask, weights=weights, missing=missing, device=device)
    if len(matrix.shape) != 2:
        raise ValueError(f"V has shape {matrix.shape}; it must be one matrix, not a stack")
    if not float(matrix.total()) > 0:
        raise ValueError("V has no entry above 0, and so no components to compare")
    seed = as_seed(random_state)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
    options = options | {"init": init}
    until = None if time_limit is None else started + float(time_limit)
    runs = _Runs(matrix, rank, n_runs, resample, seed, options)
    with counted(progress, n_runs) as count:
        runs.make(None if until is None else _FOR_RUNS * float(time_limit or 0), count)
    if len(runs.seen) < 2:
        if runs.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if runs.status is Status.TIME_LIMIT:
            raise TimeoutError(
                Sentence(
                    "{time_limit} is {given}, and {count} of {wanted} runs were done by then; a "
                    "consensus needs 2 at least: allow more time",
                    given=time_limit,
                    count=len(runs.seen),
                    wanted=n_runs,
                )
            )
        raise ValueError(
            f"{len(runs.seen)} of {n_runs} runs ended as they should, and a consensus needs 2 at "
            "least: see what factorize says about V"
        )
    return _made(runs, components, until, like(V))


class _Runs:
    """The runs, and of each what is needed of it: H, the labels of samples, the error."""

    def __init__(
        self,
        V: Matrix,
        rank: int,
        n_runs: int,
        resample: str | None,
        seed: int,
        options: dict[str, Any],
    ) -> None:
        self.V, self.rank, self.n_runs, self.resample = V, rank, n_runs, resample
        self.seed, self.options = seed, options
        names = ("loss", "regularize_W", "regularize_H")
        asked = {name: options[name] for name in names if name in options}
        self.request = Request.of(V, rank, **asked)
        m = V.shape[0]
        chosen = draws.uniform(draws.following(seed), (m,)).numpy().argsort(kind="stable")
        self.samples = np.sort(chosen[:_SAMPLES])
        self.status: Status | None = None
        self.seen: dict[int, Factors] = {}  # of run k: W of the samples, or all of it; and H
        self.errors = np.full(n_runs, np.nan)
        self.ends: dict[int, tuple[Status, Trace]] = {}

    def make(self, seconds: float | None, count: Any) -> None:
        """Carry the runs out, as many as there is time for."""
        ended = factorize_many(
            self.V,
            [self.rank],
            n_init=self.n_runs,
            resample=self.resample,
            as_completed=True,
            random_state=self.seed,
            time_limit=seconds,
            **self.options,
        )
        try:
            with closing(ended):  # pyright: ignore[reportArgumentType]
                for k, result in ended:
                    count(1)
                    if result.status is Status.INTERRUPTED:
                        raise KeyboardInterrupt
                    self._take(k, result)
        except KeyboardInterrupt:
            self.status = Status.INTERRUPTED
        if self.status is None and len(self.seen) < self.n_runs and seconds is not None:
            self.status = Status.TIME_LIMIT

    def _take(self, k: int, result: Result) -> None:
        x, error = result.factors, result.error
        if result.status not in _ENDED:
            return
        if self.resample == "bootstrap":  # whose rows are others than those of V
            x = Factors(self.coded(x.H, None), x.H)
        if self.resample:
            error = rmse(self.request.problem, x)
        self.errors[k], self.ends[k] = float(error), (result.status, result.trace)
        self.seen[k] = x if self.resample else Factors(x.W[self.samples], x.H)

    def coded(self, H: torch.Tensor, until: float | None) -> torch.Tensor:
        """The best W for V and H."""
        problem = self.request.problem
        return coefficients(self.V, H, problem.loss, problem.on_w, until=until).W

    def labels(self, kept: np.ndarray) -> np.ndarray:
        """The largest component of each sample, by run; −1 where there is none."""
        rows = self.samples if self.resample else slice(None)
        found = []
        for k in kept:
            W, H = (F.double().cpu().numpy() for F in self.seen[k])
            W = W[rows] * np.abs(H).sum(axis=0)
            found.append(np.where(W.max(axis=1) > 0, W.argmax(axis=1), -1))
        return np.stack(found)


def _made(runs: _Runs, components: str, until: float | None, as_given: Any) -> Consensus:
    """Return what the runs have in common."""
    at = np.array(sorted(runs.seen))
    H = np.stack([runs.seen[k].H.double().cpu().numpy() for k in at])
    found = clustered(H)
    kept, medoid, request = at[found.kept], int(at[found.medoid]), runs.request
    own, x = found.columns[list(kept).index(medoid)], None  # the medoid's column of each cluster
    if components == "refit" and not request.keeps_order:  # known columns have their places
        x = _refitted(runs, found, H[found.kept], until)
    if x is None:
        components, x = "medoid", _arranged(_medoid(runs, medoid, until), own)
    order = np.argsort(-shares(x).round(9), kind="stable")
    if request.keeps_order:  # that of the run
        order = np.argsort(own)
    scale = runs.options.get("scale", "balanced") if request.is_free else None
    x = canonical(_arranged(x, order), None, scale)
    found = found._replace(
        columns=found.columns[:, order],
        stability=found.stability[order],
        cosine=found.cosine[order],
    )
    matrix = connected(runs.labels(kept), runs.rank)
    tree = tree_of(matrix)
    is_kept = np.zeros(runs.n_runs, bool)
    is_kept[kept] = True
    return Consensus(
        factors=x,
        stability=found.stability,
        cosine=found.cosine,
        shares=shares(x),
        matrix=matrix,
        samples=runs.samples,
        order=tree.order,
        cophenetic=tree.cophenetic,
        kept=is_kept,
        medoid=medoid,
        errors=runs.errors,
        error=float(rmse(request.problem, x)),
        components=components,
        status=runs.status,
        ended=runs.ends[medoid][0],
        trace=runs.ends[medoid][1],
        runs=None if runs.resample is None else _matched(runs, kept, found, x),
        unmet=sum(runs.ends[k][0] is not Status.CONVERGED for k in kept),
        as_given=as_given,
    )


def _arranged(x: Factors, order: np.ndarray) -> Factors:
    return Factors(*(F[:, torch.from_numpy(order).to(F.device)] for F in x))


def _refitted(
    runs: _Runs, found: Clusters, H: Float[np.ndarray, "k n r"], until: float | None
) -> Factors | None:
    """W for the medians, H for this W, and W for this H; None where time ran out."""
    problem, V = runs.request.problem, runs.V
    lengths = np.linalg.norm(np.take_along_axis(H, found.columns[:, None, :], axis=2), axis=1)
    centres = torch.from_numpy(found.centres * np.median(lengths, axis=0)).to(V.device, V.dtype)
    on_w, on_h, loss = problem.on_w, problem.on_h, problem.loss
    first = coefficients(V, centres, loss, on_w, until=until)
    if not first.whole:
        return None
    second = coefficients(V.T, first.W, loss, on_h, centres, until=until)
    if not second.whole:
        return None
    third = coefficients(V, second.W, loss, on_w, first.W, until=until)
    return Factors(third.W, second.W) if third.whole else None


def _medoid(runs: _Runs, k: int, until: float | None) -> Factors:
    x = runs.seen[k]
    if len(x.W) == runs.V.shape[0] and runs.resample is None:
        return x
    return Factors(runs.coded(x.H, until), x.H)


def _matched(runs: _Runs, kept: np.ndarray, found: Clusters, x: Factors) -> Matched:
    """The components of all runs beside those of the consensus, with the same sums over H."""
    sums = x.H.double().abs().sum(dim=0).cpu().numpy()
    W, H = [], []
    for k, columns in zip(kept, found.columns, strict=True):
        w, h = (F.double().cpu().numpy()[:, columns] for F in runs.seen[k])
        size = np.abs(h).sum(axis=0)
        by = np.where((size > 0) & (sums > 0), sums / np.where(size > 0, size, 1.0), 1.0)
        W.append(w / by)
        H.append(h * by)
    return Matched(np.stack(W), np.stack(H))
