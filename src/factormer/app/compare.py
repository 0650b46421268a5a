"""factormer and scikit-learn on one matrix, each with its defaults."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from sklearn import decomposition
from sklearn.datasets import load_digits

from factormer.app.read import Axis, Data
from factormer.app.runs.residuals import residuals
from factormer.data.intake import is_sparse
from factormer.functions import factorize
from factormer.run.result import Result


@dataclass(frozen=True)
class Contestant:
    """Median seconds and error of one of them."""

    name: str
    seconds: float
    rmse: float


@dataclass(frozen=True)
class Race:
    """All of them, and when factormer reached scikit-learn's error; None: never."""

    rows: list[Contestant]
    seconds_to_match: float | None

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def digits() -> Data:
    """scikit-learn's digits: 1797 images of 8×8."""
    V = np.asarray(load_digits(return_X_y=True)[0])
    pixels = Axis(V.shape[1], "pixel", grid=(8, 8))
    return Data(V, Axis(len(V), "image"), pixels, "digits", "scikit-learn's digits")


def compare(V: Any, rank: int, *, repeats: int, seed: int) -> Race:
    """Run both `repeats` times, after one run each that is not timed (compilers, caches)."""
    if not is_sparse(V) and np.isnan(V).any():
        raise ValueError("V has unknown entries, which scikit-learn refuses; fill them")
    factorize(V, rank, random_state=seed)
    _sklearn(V, rank, seed)
    ours, theirs, matched = [], [], []
    for k in range(repeats):
        tick = time.perf_counter()
        result = factorize(V, rank, random_state=seed + k)
        seconds = time.perf_counter() - tick
        ours.append((seconds, residuals(V, result.W, result.H).rmse))
        theirs.append(_sklearn(V, rank, seed + k))
        matched.append(_reached(result, theirs[-1][1]))
    rows = [_row("factormer", ours), _row("scikit-learn (cd)", theirs)]
    reached = [seconds for seconds in matched if seconds is not None]
    return Race(rows, median(reached) if len(reached) == repeats else None)


def _sklearn(V: Any, rank: int, seed: int) -> tuple[float, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may reach its iteration limit
        estimator = decomposition.NMF(rank, random_state=seed)  # pyright: ignore[reportArgumentType]
        tick = time.perf_counter()
        W = estimator.fit_transform(V)
        seconds = time.perf_counter() - tick
    return seconds, residuals(V, np.asarray(W), estimator.components_.T).rmse


def _reached(result: Result, rmse: float) -> float | None:
    """Seconds until the trace reached this error; errors on a sketch are not quite exact."""
    if result.rmse > rmse:
        return None
    at = np.flatnonzero(result.trace.rmse <= rmse)
    return float(result.trace.seconds[at[0] if len(at) else -1])


def _row(name: str, runs: list[tuple[float, float]]) -> Contestant:
    seconds, errors = zip(*runs, strict=True)
    return Contestant(name, median(seconds), median(errors))
