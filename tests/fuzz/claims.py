"""What must hold of every answer, refusal and warning; each function is named after its claim."""

from __future__ import annotations

import ast
import re
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning

from factormer import penalties
from tests.fuzz.build import Case
from tests.fuzz.exact import Value, objective, sweep

OVERSHOOT = 0.5  # seconds that a time limit may be passed by
HEAVY = 2e7  # multiplications of a half-step from which first errors are those of float32
DOCUMENTED = re.compile(
    r"provided W or H are ignored|initial W is not used|cannot update zeros present"
    r"|compiled code|numba|the network changed nothing|FutureWarning: V has shape"
)


class Broken(Exception):  # noqa: N818
    """A claim that does not hold: its name, and what was seen instead."""

    def __init__(self, claim: str, what: str) -> None:
        super().__init__(claim, what)
        self.claim, self.what = claim, what


class Refused(Exception):  # noqa: N818
    """An input that was answered with a sentence."""


def claim(holds: Any, name: str, what: Any = "") -> None:
    """Raise where a claim does not hold."""
    if not bool(holds):
        raise Broken(name, str(what() if callable(what) else what))


@dataclass
class Answer:
    """A factorisation as it was reported; the factors as float64 arrays."""

    W: np.ndarray
    H: np.ndarray
    rmse: float
    loss: float
    errors: np.ndarray
    last: float
    status: str
    n_iter: int

    @staticmethod
    def of(result: Any) -> Answer:
        trace = result.trace
        return Answer(
            as_array(result.W), as_array(result.H), float(result.rmse), float(result.loss),
            np.asarray(trace.rmse, float), float(trace.last.rmse), result.status.name,
            result.n_iter,
        )  # fmt: skip


def as_array(F: Any) -> np.ndarray:
    """Numbers of any kind as float64."""
    return (F.detach().numpy() if isinstance(F, torch.Tensor) else np.asarray(F)).astype(float)


def called(case: Case, function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Call the package; what comes in, warnings, errors and the clock are looked at."""
    before = [array.copy() for array in case.arrays]
    limit, clock = case.spec.get("time_limit"), time.process_time()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            out = function(*given, **options)
        except Exception as error:
            errors_are_sentences(error)
            inputs_are_untouched(before, case.arrays)
            raise Refused(f"{type(error).__name__}: {error}") from error
    spent = time.process_time() - clock
    inputs_are_untouched(before, case.arrays)
    warnings_are_documented(seen)
    if limit and not case.spec.get("wrong"):
        claim(spent < limit + OVERSHOOT, "time_limit_is_kept", f"{spent:.2f} s for {limit} s")
    return out


def errors_are_sentences(error: Exception) -> None:
    """Of a kind for users, raised on purpose, by us or by scikit-learn's validation."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.lineno]
    text = f"{type(error).__name__}: {error}"[:300]
    ours = [f for f in frames if "factormer" in Path(f.filename).parts]
    place = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    kinds = (ValueError, TypeError, ImportError, OSError)
    right = isinstance(error, kinds) and not isinstance(error, UnicodeError)
    last = frames[-1]
    lent = "sklearn" in last.filename and "valid" in last.filename
    meant = lent or (last in ours and _is_raise(last.filename, last.lineno))
    claim(right and meant and len(str(error)) > 25, "errors_are_sentences", text + place)


@cache
def _raises(file: str) -> list[tuple[int, int]]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return [(node.lineno, node.end_lineno or node.lineno) for node in found]


def _is_raise(file: str, line: int | None) -> bool:
    return any(a <= (line or 0) <= b for a, b in _raises(file))


def warnings_are_documented(seen: list[Any]) -> None:
    for warning in seen:
        known = issubclass(warning.category, ConvergenceWarning | DataConversionWarning)
        text = f"{warning.category.__name__}: {warning.message}"[:200]
        place = f" at {Path(warning.filename).name}:{warning.lineno}"
        claim(known or DOCUMENTED.search(text), "warnings_are_documented", text + place)


def inputs_are_untouched(before: list[np.ndarray], after: list[np.ndarray]) -> None:
    same = len(before) == len(after) and all(
        a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(before, after, strict=True)
    )
    claim(same, "inputs_are_untouched")


def holds_for_every_answer(case: Case, x: Answer, *, on_w: Any = None, on_h: Any = None) -> Value:
    """All that any factorisation of the case promises."""
    on_w = case.on_w if on_w is None else on_w
    on_h = case.on_h if on_h is None else on_h
    factors_are_finite(x.W, x.H)
    for name, F, terms in (("W", x.W, on_w), ("H", x.H, on_h)):
        factor_is_feasible(name, F, terms, case)
    if case.spec.get("symmetric"):
        claim(np.array_equal(x.W, x.H), "symmetric_factors_are_one")
    truth = objective(case.A, case.omega, x.W, x.H, case.beta, on_w, on_h, case.eps)
    if case.is_sparse and case.beta in (1, 2):  # the zeros come from products, which cancel
        truth = truth._replace(noise=truth.noise + _cancelled(case, x))
    if not case.A.any():  # beside zeros, which have no unit, squares that are no numbers are 0
        tiny = np.longdouble(np.finfo(case.dtype).tiny)
        truth = truth._replace(noise=truth.noise + truth.entries * tiny)
    reported_is_recomputed(case, x, truth)
    answer_is_no_worse_than_any_iterate(case, x, truth)
    if x.status == "CONVERGED":
        converged_means_converged(case, x, truth)
    trace_has_one_unit(x)
    return truth


def _cancelled(case: Case, x: Answer) -> Any:
    """Return what is lost of ‖V‖² − 2⟨VH, W⟩ + ⟨WᵀW, HᵀH⟩ in float64, or of the sum of W Hᵀ."""
    Y = np.abs(x.W).astype(np.longdouble) @ np.abs(x.H).astype(np.longdouble).T
    size = (Y**2 + case.A.astype(np.longdouble) ** 2).sum() if case.beta == 2 else Y.sum()
    return 1e2 * np.finfo(float).eps * size


def factors_are_finite(*factors: np.ndarray) -> None:
    for F in factors:
        claim(np.isfinite(F).all(), "factors_are_finite", lambda F=F: f"{(~np.isfinite(F)).sum()}")


def factor_is_feasible(name: str, F: np.ndarray, terms: Any, case: Case) -> None:
    """Nonnegative unless said otherwise; on the simplex, within bounds, and known where fixed."""
    room = 1e4 * case.eps
    low, whole = 0.0, F
    for term in terms:
        if isinstance(term, penalties.Fixed):  # what is known keeps to nothing else
            F = F[:, ~np.asarray(term.at)]
    for term in terms:
        match term:
            case penalties.Free():
                low = -np.inf
            case penalties.Bounds() | penalties.Simplex() if not F.size:
                continue
            case penalties.Bounds():
                low = term.low
                over = float(F.max()) - term.high
                claim(over <= room * abs(term.high), "bounds_are_kept", f"{name} {over:g} above")
            case penalties.Simplex():
                sums = F.sum(axis=1 if term.by == "rows" else 0)
                gap = float(np.abs(sums - term.total).max())
                claim(gap <= room * term.total, "simplex_sums_hold", f"{name} off by {gap:g}")
            case penalties.Fixed():
                at, columns = np.asarray(term.at), as_array(term.columns)
                close = np.allclose(
                    whole[:, at], columns, rtol=room, atol=float(columns.max()) * room
                )
                claim(close, "fixed_columns_are_kept", name)
    least = float(F.min(initial=low if np.isfinite(low) else 0.0))
    claim(least >= low - room * abs(low), "factors_are_feasible", f"{name} has {least:g}")


def _share(case: Case) -> float:
    """Return what rounding may do to a number that was computed in many steps."""
    return max(1e3 * case.eps, 1e-9)


def _overflows(x: Any) -> bool:
    """Whether the true number has no place among those of float64."""
    info = np.finfo(np.float64)
    return not 1e3 * info.tiny < float(x) < info.max / 1e3


def reported_is_recomputed(case: Case, x: Answer, truth: Value) -> None:
    """rmse, loss and the end of the trace, beside extended precision."""
    if not _is_judged(case, x, truth):
        return
    mine = np.sqrt(2 * max(truth.fit, 0) / truth.entries)  # of the data, without penalties
    blur = np.sqrt(2 * (max(truth.fit, 0) + truth.noise) / truth.entries) - mine
    slack = blur + _share(case) * mine
    claim(np.isfinite(x.rmse), "reported_is_finite", f"rmse {x.rmse}, in truth {mine:g}")
    claim(abs(x.rmse - mine) <= slack, "rmse_is_recomputed", f"{x.rmse:g}, in truth {mine:g}")
    if not _overflows(truth.total):
        room = truth.noise + 4 * _share(case) * abs(truth.total)
        what = f"{x.loss:g}, in truth {truth.total:g}"
        claim(abs(x.loss - truth.total) <= room, "loss_is_recomputed", what)


def trace_has_one_unit(x: Answer) -> None:
    if len(x.errors) and np.isfinite(x.errors[-1]):
        same = np.isclose(x.last, x.errors[-1], rtol=1e-6, atol=0)
        claim(same, "trace_has_one_unit", f"last {x.last:g}, errors end {x.errors[-1]:g}")


def _is_judged(case: Case, x: Answer, truth: Value) -> bool:
    """Not where a divergence meets its pole, whose height is a matter of definition."""
    if not np.isfinite(float(truth.total)) or _overflows(truth.rmse):
        return False
    if case.beta == 2:
        return True
    known = np.ones(case.A.shape, bool) if case.omega is None else case.omega > 0
    level = max(float(case.A[known].mean()), 1e-300)
    tiny, reach = np.finfo(case.dtype).tiny, np.longdouble(level) ** abs(case.beta)
    least = (x.W @ x.H.T)[known].min()
    clear = least > level * (1e-30 if case.dtype == np.float32 else 1e-200)
    return bool(clear and case.beta > -2 and 1e-300 < reach < 1e300 and tiny < level)


def answer_is_no_worse_than_any_iterate(case: Case, x: Answer, truth: Value) -> None:
    """Neither than the start nor than the best point on the way, where the trace is of V."""
    large = case.A.size > 20_000 and case.spec.get("solver") is None
    errors = x.errors[np.isfinite(x.errors)]
    if large or not len(errors) or not _is_judged(case, x, truth):
        return
    slack = 2 * truth.blur + _share(case) * errors.min()
    if case.A.size * x.W.shape[1] ** 2 > HEAVY:  # which begins in float32
        slack += 8 * float(np.finfo(np.float32).eps) * errors.min()
    if case.beta == 2:  # errors on the way come from products, whose squares cancel
        known = case.A if case.omega is None else np.where(case.omega > 0, case.A, 0)
        square = np.longdouble(errors.min()) ** 2 + 64 * case.eps * np.mean(
            known.astype(np.longdouble) ** 2
        )
        slack += np.sqrt(square) - errors.min()
    what = f"{truth.rmse:g} at the end, {errors.min():g} on the way, {errors[0]:g} at the start"
    claim(truth.rmse <= errors.min() + slack, "never_worse_than_the_best_iterate", what)


def converged_means_converged(case: Case, x: Answer, truth: Value) -> None:
    """One more sweep lowers a converged least-squares error by no visible share of the data."""
    plain = case.beta == 2 and case.omega is None and not case.on_w and not case.on_h
    words = case.spec.get("words", {})
    if not plain or case.spec.get("symmetric") or case.spec["tol"] > 1e-4 or case.A.size > 3000:
        return
    if words.get("alpha_W") or words.get("alpha_H") or words.get("fixed"):
        return
    if case.spec["entry"] == "nnf_fixed":
        return
    if not np.isfinite(case.A).all():
        return
    W, H = sweep(case.A, x.W, x.H, least=case.spec["tol"])
    after = objective(case.A, None, W, H, eps=case.eps)
    size = np.sqrt((case.A.astype(np.longdouble) ** 2).mean())
    what = f"{truth.rmse:g} falls to {after.rmse:g} of {size:g} in a sweep, {x.n_iter} iterations"
    claim(not size or truth.rmse - after.rmse <= 0.02 * size, "converged_means_converged", what)


def runs_are_alike(first: Answer, second: Answer) -> None:
    """Two equal calls give equal factors."""
    for F, G in ((first.W, second.W), (first.H, second.H)):
        same = np.allclose(F, G, rtol=1e-9, atol=0)
        claim(same, "calls_are_deterministic", lambda F=F, G=G: f"apart by {np.abs(F - G).max():g}")
