"""cross_validate(): the error of hidden entries, rank by rank."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

from factormer.data import Matrix, draws
from factormer.data.frame import frame_of
from factormer.data.keywords import as_rank, as_seed, check_limits
from factormer.data.observations import observe
from factormer.functions import factorize_many
from factormer.problem.loss import Loss
from factormer.problem.losses import as_loss
from factormer.problem.problem import Problem
from factormer.run.request import check_count
from factormer.run.result import Result, Status
from factormer.run.watch import counted
from factormer.select.holdout import Speckled, parts_of
from factormer.select.pictures import axes_of
from factormer.sentence import Sentence

_ROUNDED = 1e-12  # of the loss of an entry: less is rounding
_LEVEL = 0.975  # of the test by which ranks are told apart
_ROBUST = 5  # folds from which on the lowest and the highest are left out
_REACH = 120  # powers of ten that the loss of an entry may be from 1


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """The error of hidden entries at each rank: the mean loss of an entry.

    It is ½(v − y)² for the squared error, v log(v/y) − v + y for Kullback–Leibler. `errors` has a
    row for each rank and a column for each fold, with NaN where there was no time.

    All ranks predict the same hidden entries, so ranks are compared fold by fold, by the square
    roots of their errors. From five folds on, means leave out the lowest and the highest fold (of
    twenty and more, a tenth at each end), so that one fold that went wrong does not decide.
    """

    ranks: Int[np.ndarray, " k"]
    errors: Float[np.ndarray, "k f"]
    loss: Loss
    holdout: float
    resolution: float = 0.0  # differences of errors that are rounding
    status: Status | None = None  # why folds are missing, if some are

    @property
    def mean(self) -> Float[np.ndarray, " k"]:
        """The mean over folds, at each rank, without the lowest and the highest of five or more."""
        return _mean(self._complete)

    @property
    def standard_error(self) -> Float[np.ndarray, " k"]:
        """Return the standard error of the mean; NaN with a single fold."""
        return _standard_error(self._complete)

    @property
    def rank(self) -> int:
        """The rank with the least error, fold by fold."""
        return int(self.ranks[self._best])

    @property
    def rank_1se(self) -> int:
        """The smallest rank whose error is within one standard error of the least.

        The folds are the same for all ranks, so it is the standard error of the difference.
        """
        return int(self.ranks[self._within(1.0)].min())

    @property
    def ranks_as_good(self) -> Int[np.ndarray, " g"]:
        """The ranks that hidden entries do not tell from `rank`, which is one of them.

        Their errors are not larger than its own at the level of 2.5 %, by a one-sided t-test of the
        differences in each fold (not 5 %, as the best of several is the best by chance too). Of a
        single fold, it is `rank` alone.
        """
        n_folds = self._complete.shape[1]
        freedom = n_folds - 2 * _left_out(n_folds) - 1
        return self.ranks[self._within(float(stdtrit(freedom, _LEVEL)) if freedom > 0 else 0.0)]

    @property
    def _best(self) -> int:
        return int(np.nanargmin(_mean(self._compared)))

    def _within(self, standard_errors: float) -> Bool[np.ndarray, " k"]:
        """Which ranks exceed the best by at most so many standard errors of the difference."""
        excess = self._compared - self._compared[self._best]
        return _mean(excess) <= standard_errors * np.nan_to_num(_standard_error(excess))

    @property
    def _compared(self) -> Float[np.ndarray, "k g"]:
        """The roots of the errors, of which those that are rounding are equal.

        Errors of a loss that may be negative are themselves.
        """
        folds = self._complete
        return folds if bool((folds < 0).any()) else np.sqrt(np.maximum(folds, self.resolution))

    @property
    def _complete(self) -> Float[np.ndarray, "k g"]:
        """The folds that can be compared: those of all ranks that have the most common fold."""
        done = ~np.isnan(self.errors)
        ranks = done[:, done.sum(axis=0).argmax()]
        return np.where(ranks[:, None], self.errors, np.nan)[:, done[ranks].all(axis=0)]

    def columns(self) -> dict[str, np.ndarray]:
        """The table as arrays: rank, error and standard_error."""
        return {"rank": self.ranks, "error": self.mean, "standard_error": self.standard_error}

    def table(self) -> Any:
        """A pandas DataFrame with a row for each rank."""
        return frame_of(self.columns())

    def plot(self, ax: Any = None) -> Any:
        """Draw the error against the rank on matplotlib axes, which are returned."""
        ax = axes_of(ax)
        spread = np.nan_to_num(self.standard_error)
        ax.errorbar(self.ranks, self.mean, spread, marker="o", capsize=3, color="C0")
        ax.axvline(self.rank, color="C1", label=f"least: rank {self.rank}")
        if self.rank_1se != self.rank:
            label = f"within a standard error: rank {self.rank_1se}"
            ax.axvline(self.rank_1se, color="C1", linestyle="--", label=label)
        ax.set_xlabel("rank")
        ax.set_ylabel(f"loss of a hidden entry ({self.loss})")
        ax.legend()
        return ax

    def __repr__(self) -> str:
        least = np.nanmin(self.mean)
        return (
            f"<CrossValidation: {len(self.ranks)} ranks, {self._complete.shape[1]} folds of "
            f"{self.holdout:.0%}; least error {least:.4g} at rank {self.rank}, within a standard "
            f"error from rank {self.rank_1se} on>"
        )


def cross_validate(
    V: Any,
    ranks: Any,
    *,
    holdout: float = 0.1,
    n_folds: int = 5,
    n_init: int = 1,
    mask: Any = None,
    weights: Any = None,
    missing: str | None = None,
    device: str | None = None,
    random_state: int | None = 0,
    max_iter: int = 50,
    tol: float | int = 0,
    time_limit: float | int | None = None,
    progress: bool = False,
    **options: Any,
) -> CrossValidation:
    """Hide entries of V at random, fit the others at each rank, and compare the hidden ones.

    A rank that is too low misses structure, and one that is too high learns noise: the error of
    hidden entries is least in between.

    Parameters
    ----------
    V : array-like, sparse matrix or tensor, (m, n)
        As in `factorize`. Zeros are data, also those of sparse V, unless missing="zeros"; entries
        that are not known are never hidden.
    ranks : int or list of int
        Ranks to try.
    holdout : float
        Share of the known entries that each fold hides, above 0 and at most 0.5.
    n_folds : int
        How many folds, which hide different entries; at most 1/holdout.
    n_init : int
        Runs of each fit from different starts, of which the one that fits best is taken.
    mask, weights, missing, device
        As in `factorize`. Weights also apply to the error.
    random_state : int, optional
        Seed of folds and starts; the folds are the same for all ranks.
    max_iter, tol : int, float
        As in `factorize`, with fewer iterations: errors of hidden entries change little after that.
    time_limit : float, optional
        Seconds for all. The first fold is fitted at all ranks, then the second, and so on; what is
        done by then counts, also after Ctrl-C.
    progress : bool
        Show a bar.
    **options
        Other keywords of `factorize_many`: loss, regularize_W, regularize_H, init, solver, …

    Returns
    -------
    CrossValidation
        `rank` has the least error, `rank_1se` is the smallest within one standard error of it,
        `ranks_as_good` are those that hidden entries do not tell from it; `table()`, `plot()`.
    """
    until = _until(time_limit)
    tried = _as_ranks(ranks)
    parts = parts_of(holdout)
    _check_folds(n_folds, holdout, parts)
    seed = as_seed(random_state)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
    check_count("n_init", n_init)
    matrix = observe(V, mask=mask, weights=weights, missing=missing, device=device)
    _check_one(matrix)
    loss = as_loss(options.get("loss", "frobenius"))
    unit = _unit(matrix, loss)
    speckled = Speckled.of(matrix, parts, draws.following(seed))
    folds = [fold for fold in range(parts) if bool((speckled.part == fold).any())][:n_folds]
    seen = [speckled.without(fold) for fold in folds]
    jobs = [(f, k) for f in range(len(folds)) for k in range(len(tried))]
    best: dict[tuple[int, int], Result] = {}
    left = np.full(len(jobs), n_init)
    errors = np.full((len(tried), len(folds)), np.nan)
    status = None
    with counted(progress, len(jobs) * n_init) as count:
        ended = factorize_many(
            [seen[f] for f, _ in jobs],
            [int(tried[k]) for _, k in jobs],
            grid=False,
            n_init=n_init,
            as_completed=True,
            random_state=seed,
            max_iter=max_iter,
            tol=tol,
            time_limit=None if until is None else max(until - time.perf_counter(), 1e-9),
            **options,
        )
        try:
            with closing(ended):  # pyright: ignore[reportArgumentType]
                for index, result in ended:
                    count(1)
                    place, job = index // n_init, jobs[index // n_init]
                    if result.status is Status.TIME_LIMIT:
                        continue
                    if result.status is Status.INTERRUPTED:
                        raise KeyboardInterrupt
                    left[place] -= 1
                    if job not in best or result.error < best[job].error:
                        best[job] = result
                    if not left[place]:
                        x = best.pop(job).factors
                        errors[job[1], job[0]] = speckled.error(folds[job[0]], x, loss)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
    if np.isnan(errors).all():
        if status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        raise TimeoutError(
            Sentence(
                "{time_limit} is {given}, and no fit was done by then; allow more time",
                given=time_limit,
            )
        )
    if status is None and np.isnan(errors).any():
        status = Status.TIME_LIMIT
    return CrossValidation(tried, errors, loss, 1 / parts, _ROUNDED * unit, status)


def _until(time_limit: Any) -> float | None:
    check_limits(1, 0.0, time_limit)
    return None if time_limit is None else time.perf_counter() + float(time_limit)


def _as_ranks(ranks: Any) -> Int[np.ndarray, " k"]:
    """Ranks to try, each once, the lowest first."""
    given = list(ranks) if isinstance(ranks, Iterable) and not isinstance(ranks, str) else [ranks]
    if not given:
        raise ValueError("ranks is empty; pass one rank at least, such as range(1, 11)")
    return np.unique([as_rank(rank) for rank in given])


def _check_folds(n_folds: Any, holdout: float, parts: int) -> None:
    check_count("n_folds", n_folds)
    if n_folds > parts:
        raise ValueError(
            f"n_folds is {n_folds}; folds that hide {holdout:g} of the entries each, and each "
            f"different ones, are at most {parts}: choose fewer folds or a smaller holdout"
        )


def _check_one(V: Matrix) -> None:
    if len(V.shape) != 2:
        raise ValueError(f"V has shape {V.shape}; it must be one matrix, not a stack")


def _unit(V: Matrix, loss: Loss) -> float:
    """The loss of an entry of the size of V's mean; an error where it is not representable."""
    problem = Problem(V, 1, loss)
    mean = float(problem.mean())
    size = abs(loss.degree * np.log10(mean)) if mean > 0 else 0.0
    if not size <= _REACH:
        raise ValueError(
            f"V has mean {mean:g}, and its errors under this loss, {loss}, are beyond float64: "
            "divide V by its mean"
        )
    return mean**loss.degree if mean > 0 else 1.0


def _left_out(n_folds: int) -> int:
    """How many folds a mean leaves out at each end."""
    return max(n_folds // 10, int(n_folds >= _ROBUST))


def _mean(folds: Float[np.ndarray, "k f"]) -> Float[np.ndarray, " k"]:
    """Return the trimmed mean of each row."""
    count, out = folds.shape[1], _left_out(folds.shape[1])
    return np.sort(folds, axis=1)[:, out : count - out].mean(axis=1)


def _standard_error(folds: Float[np.ndarray, "k f"]) -> Float[np.ndarray, " k"]:
    """Return the standard error of the trimmed mean of each row.

    It is that of Yuen (1974): folds that are left out count as their nearest neighbours.
    """
    count, out = folds.shape[1], _left_out(folds.shape[1])
    if count < 2:
        return np.full(len(folds), np.nan)
    ordered, kept = np.sort(folds, axis=1), count - 2 * out
    near = np.clip(ordered, ordered[:, [out]], ordered[:, [count - out - 1]])
    return near.std(axis=1, ddof=1) * np.sqrt((count - 1) / (kept * (kept - 1)))
