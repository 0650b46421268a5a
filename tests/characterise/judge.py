"""Judge what a call returned: its error, computed here in float64, and what was promised of it.

The error is the square root of Σω(v − y)² / Σωv² for the squared error alone, and otherwise the
objective: the divergence plus the penalties. Nothing is taken from what the result says of itself,
except to compare it with the numbers that are computed here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.special

from tests.characterise.cases import Case
from tests.characterise.data import Data


@dataclass(frozen=True, eq=False)
class Answer:
    """The factors and the claims that one run returned, for one of the problems of its data."""

    W: Any
    H: Any
    status: str = ""
    iterations: int = 0
    rmse: float | None = None  # what the result says of itself
    loss: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # what has to be equal, such as a rank
    of: int = 0  # the problem, where there are several
    rows: slice = field(default_factory=lambda: slice(None))  # the rows of V that W describes
    rank: int | None = None  # where it is not the one of the case
    hidden: float | None = None  # an error that the call itself returned, of hidden entries


@dataclass(frozen=True)
class Verdict:
    """The error of an answer, and the promises that it does not keep."""

    error: float
    broken: tuple[str, ...]


def judged(case: Case, data: Data, answer: Answer) -> Verdict:
    """Return the error of an answer, and what of the promises of its case it breaks."""
    if answer.W is None:
        return Verdict(np.nan if answer.hidden is None else answer.hidden, ())
    V = data.dense[answer.of][answer.rows]
    weights = np.ones_like(V) if data.weights is None else data.weights[answer.rows]
    W, H = (np.asarray(F, np.float64) for F in (answer.W, answer.H))
    rank = case.rank if answer.rank is None else answer.rank
    if W.shape != (len(V), rank) or H.shape != (V.shape[1], rank):
        return Verdict(np.nan, ("shape",))
    if not (np.isfinite(W).all() and np.isfinite(H).all()):
        return Verdict(np.nan, ("finite",))
    unit = V.max() or 1.0  # so that no square overflows
    Y, scaled = (W @ H.T) / unit, V / unit
    square = float((weights * (scaled - Y) ** 2).sum())
    misfit = unit * np.sqrt(square / np.count_nonzero(weights))
    if case.is_plain:
        error = np.sqrt(square / max(float((weights * scaled**2).sum()), 1e-300))
        objective = unit**2 * square / 2 if unit < 1e100 else np.inf
    else:
        terms = sum(value(term, F) for on, F in ((case.on_w, W), (case.on_h, H)) for term in on)
        error = objective = divergence(case.loss, V, W @ H.T, weights) + terms
    broken = [name for name in case.promises if not PROMISES[name](case, W, H)]
    if case.says and case.is_squared and answer.rmse is not None:
        broken += ["rmse"] * (not close(answer.rmse, misfit, case))
    if case.says and answer.loss is not None and np.isfinite(objective):
        broken += ["loss"] * (not close(answer.loss, objective, case))
    return Verdict(float(error), tuple(broken))


def close(said: float, computed: float, case: Case) -> bool:
    """Return whether a number that the result says is the one computed, up to rounding."""
    return abs(said - computed) <= 2e-3 * abs(computed) + case.rounding


def divergence(loss: Any, V: np.ndarray, Y: np.ndarray, weights: np.ndarray) -> float:
    """Σω d(v, y), with d written once more in NumPy."""
    if hasattr(loss, "in_numpy"):
        return float((weights * loss.in_numpy(V, Y)).sum())
    names: dict[Any, Any] = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}
    beta: Any = names.get(loss, loss)
    if beta == 2:
        return float((weights * (V - Y) ** 2).sum() / 2)
    Y = np.maximum(Y, np.finfo(float).tiny)
    if beta == 1:
        each = scipy.special.kl_div(V, Y)
    elif beta == 0:
        each = V / Y - np.log(V / Y) - 1
    else:
        each = (V**beta + (beta - 1) * Y**beta - beta * V * Y ** (beta - 1)) / (beta * (beta - 1))
    return float((weights * each).sum())


def value(term: Any, X: np.ndarray) -> float:
    """The value of a penalty, written once more in NumPy; that of a constraint is zero."""
    kind = type(term).__name__
    if kind == "L1":
        return float(term.weight * np.abs(X).sum())
    if kind in ("L2", "Ridge"):
        return float(term.weight / 2 * (X**2).sum())
    if kind == "Smooth":
        return float(term.weight / 2 * (np.diff(X, axis=0) ** 2).sum())
    if kind == "Group":
        return float(term.weight * np.linalg.norm(X, axis=1 if term.by == "rows" else 0).sum())
    if kind == "Orthogonal":
        overlaps = X.T @ X
        return float(term.weight * np.triu(overlaps, 1).sum())
    if kind == "Volume":
        return float(
            term.weight / 2 * np.linalg.slogdet(np.eye(X.shape[1]) + X.T @ X / term.delta)[1]
        )
    return 0.0


def _nonnegative(case: Case, W: np.ndarray, H: np.ndarray) -> bool:
    return bool((W >= 0).all() and (H >= 0).all())


def _by_share(case: Case, W: np.ndarray, H: np.ndarray) -> bool:
    shares = (np.abs(W) / (np.abs(W).max() or 1.0)).sum(0) * (
        np.abs(H) / (np.abs(H).max() or 1.0)
    ).sum(0)
    shares /= shares.sum() or 1.0
    return bool((np.diff(shares) <= 1e-6).all())


def _balanced(case: Case, W: np.ndarray, H: np.ndarray) -> bool:
    w, h = np.linalg.norm(W, axis=0), np.linalg.norm(H, axis=0)
    present = (w > 0) & (h > 0)
    return bool((np.abs(w - h) <= 1e-3 * h)[present].all())


def _summed(case: Case, W: np.ndarray, H: np.ndarray) -> bool:
    sums = H.sum(axis=0)
    return bool((np.abs(sums - 1) <= 1e-5)[sums > 0].all())


def _rows_sum_to_one(case: Case, W: np.ndarray, H: np.ndarray) -> bool:
    return bool((np.abs(W.sum(axis=1) - 1) <= 1e-6).all())


def _bounded(case: Case, W: np.ndarray, H: np.ndarray) -> bool:
    return bool(H.max() <= 1 + 1e-9)


def _fixed(case: Case, W: np.ndarray, H: np.ndarray) -> bool:
    (term,) = (term for term in case.on_h if type(term).__name__ == "Fixed")
    return bool(np.abs(H[:, np.asarray(term.at)] - np.asarray(term.columns)).max() <= 1e-12)


def _one_factor(case: Case, W: np.ndarray, H: np.ndarray) -> bool:
    return bool(np.abs(W - H).max() <= 1e-9 * np.abs(H).max())


PROMISES = {
    "nonnegative": _nonnegative,
    "by share": _by_share,
    "balanced": _balanced,
    "H sums to one": _summed,
    "rows of W sum to one": _rows_sum_to_one,
    "H at most one": _bounded,
    "known columns stay": _fixed,
    "W is H": _one_factor,
}
