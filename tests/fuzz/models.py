"""The estimator and its function, each method with the claims that are its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import factormer
from factormer import penalties
from tests.fuzz.build import Case, case_of
from tests.fuzz.claims import (
    Answer,
    as_array,
    called,
    claim,
    factors_are_finite,
    holds_for_every_answer,
    runs_are_alike,
)
from tests.fuzz.exact import Value, nnls_objective, objective
from tests.fuzz.options import options, wronged

# Of the data's size, that an objective may be off by. Where it takes iterations, 500 of them end
# 3e-7 above it for components that differ by 1e-8.
EXACT = {True: 1e-12, False: 1e-6}
AGREES = 1e-3  # share by which the objectives of fit and transform may differ


def _model(case: Case, **more: Any) -> tuple[Any, dict[str, Any], Any, Any]:
    """An estimator, what its fit is given besides X, and what it minimises on W and H."""
    spec, words = case.spec, dict(case.spec.get("words", {}))
    fixed = min(words.pop("fixed", 0), case.rank)
    keywords = options(case) | words | {"n_components": spec.get("n_components", case.rank)}
    keywords |= {"beta_loss": spec.get("loss", "frobenius")} | more
    if case.on_w or case.on_h:
        keywords |= {"regularize_W": case.on_w or None, "regularize_H": case.on_h or None}
    if spec.get("symmetric"):
        keywords["symmetric"] = True
    given = {k: v for k, v in case.counts.items() if k != "missing"}
    if spec.get("known") in ("nan", "zeros"):
        keywords["missing"] = spec["known"]
    if case.start is not None:
        given |= {"W": case.start[0], "H": np.ascontiguousarray(case.start[1].T)}
    if fixed:
        keywords["fixed_components"] = case.rng.random((fixed, case.A.shape[1]))
    keywords = wronged(case, keywords, rank="n_components", loss="beta_loss")
    for name in ("weights", "mask"):
        if name in keywords:
            given[name] = keywords.pop(name)
    alpha, ratio = keywords.get("alpha_W", 0.0), keywords.get("l1_ratio", 0.0)
    other = keywords.get("alpha_H", "same")
    other = alpha if other == "same" else other
    (m, n), on = case.A.shape, []
    for terms, weight in ((case.on_w, alpha * n), (case.on_h, other * m)):
        added = [penalties.L1(weight * ratio), penalties.L2(weight * (1 - ratio))]
        on.append([*terms, *(term for term in added if term.weight)])
    return factormer.NMF(**keywords), given, on[0], on[1]


def _fitted(case: Case, **more: Any) -> tuple[Any, Answer, Value | None, dict[str, Any], Any]:
    model, given, on_w, on_h = _model(case, **more)
    W = called(case, model.fit_transform, case.V, **given)
    x = Answer.of(model.result_)
    claim(np.array_equal(as_array(W), x.W), "fit_transform_returns_W")
    claim(np.array_equal(as_array(model.components_), x.H.T), "components_are_H")
    truth = None
    if not case.spec.get("wrong"):
        on_h = [*on_h, *_known(model)]
        truth = holds_for_every_answer(case, x, on_w=on_w, on_h=on_h)
        fit = np.sqrt(2 * np.maximum(truth.fit, 0))
        share = max(1e3 * case.eps, 1e-11)  # of ‖V‖² − 2⟨VH, W⟩ + ⟨WᵀW, HᵀH⟩ down to 1e-4 of ‖V‖²
        room = np.sqrt(2 * (truth.fit + truth.noise)) - fit + share * fit
        error = model.reconstruction_err_
        beyond = fit > np.finfo(float).max and error == np.inf  # the sum, and no entry of it
        right = case.beta != 2 or beyond or abs(error - fit) <= room
        what = f"{error:g}, in truth {fit:g}"
        claim(right, "reconstruction_err_is_recomputed", what)
    return model, x, truth, given, (on_w, on_h)


def _known(model: Any) -> list[Any]:
    """Components that were given, as the penalty that they are to the solver."""
    rows, rank = model.fixed_components, len(model.components_)
    return [] if rows is None else [penalties.Fixed(rows.T, np.arange(rank) < len(rows))]


def fit_transform(case: Case) -> str:
    model, x, *_ = _fitted(case)
    words = case.spec.get("words", {})
    free = not (case.on_w or case.on_h or words.keys() & {"alpha_W", "alpha_H", "fixed"})
    if free and case.start is None and words.get("scale") == "sum" and not model.symmetric:
        sums, top = x.H.sum(axis=0), np.finfo(case.dtype).max
        keeps = x.W.max(axis=0).astype(np.longdouble) * sums > top  # no number could be its W
        right = np.isclose(sums, 1, rtol=1e-3) | (sums == 0) | keeps
        claim(right.all(), "components_sum_to_one", f"{sums.min():g} to {sums.max():g}")
    if case.spec.get("twice") and "time_limit" not in case.spec:
        other = case_of(case.spec)
        again, given, *_ = _model(other)
        called(other, again.fit, other.V, **given)
        runs_are_alike(x, Answer.of(again.result_))
    return x.status


def transform(case: Case) -> str:
    """`transform` on the data of a converged fit gives as good a W; rows do not see each other."""
    model, x, truth, given, (on_w, on_h) = _fitted(case)
    given = {k: v for k, v in given.items() if k not in ("W", "H")}
    W = as_array(called(case, model.transform, case.V, **given))
    factors_are_finite(W)
    claim(W.shape == x.W.shape, "transform_has_the_shape_of_W", W.shape)
    back = as_array(called(case, model.inverse_transform, W))
    claim(back.shape == case.A.shape, "inverse_transform_has_the_shape_of_X", back.shape)
    if truth is None or model.symmetric:
        return x.status
    value = objective(case.A, case.omega, W, x.H, case.beta, on_w, on_h, case.eps)
    smooth = any(isinstance(term, penalties.Smooth | penalties.Orthogonal) for term in on_w)
    convex = 1 <= case.beta <= 2 and not smooth
    tol, level, size = case.spec["tol"], np.sqrt(max(0.0, np.nanmean(case.A))), _size(case)
    settled = x.status == "CONVERGED" and 0 < tol < 0.1 and np.isfinite(float(value.total))
    settled = settled and case.spec["max_iter"] and "time_limit" not in case.spec
    # A penalty on H alone leads H to 0 and W beyond all bounds; subnormal data have few digits.
    regular = x.H.max() > 1e-60 * level and level**2 > 1e3 * np.finfo(case.dtype).tiny
    # Newton takes the fit of an entry to be at least 1e-5 of it: penalties may leave less.
    regular = regular and (x.W @ x.H.T).max() > 1e-5 * np.nanmax(case.A)
    if convex and settled and regular:
        room = 8 * (truth.noise + value.noise)
        mean = np.full_like(W[:, :1], 1.0), np.full_like(x.H[:, :1], np.nanmean(case.A))
        room += 1e-9 * objective(case.A, case.omega, *mean, case.beta).fit
        what = f"{value.total:g} by transform, {truth.total:g} by fit"
        # Exact rows are proved by gradients of some eps; others end at a gradient of 1e-8.
        exact = case.beta == 2 and case.omega is None and not any(map(_takes_iterations, on_w))
        worse = value.total - truth.total <= AGREES * truth.total + room + EXACT[exact] * size
        claim(worse, "transform_is_as_good_as_fit", what)
        ends = max(1e-2 * tol, EXACT[exact]) * size  # where a fit may end, near an exact one
        better = truth.total - value.total <= AGREES * value.total + room + ends
        claim(better, "fit_is_as_good_as_transform", what)
    return x.status


def _takes_iterations(term: Any) -> bool:
    """Whether rows with this penalty are found by ADMM."""
    elastic = isinstance(term, penalties.L1 | penalties.L2)
    return not (elastic or (isinstance(term, penalties.Simplex) and term.by == "rows"))


def _size(case: Case) -> Any:
    """Σ ω |v|^β over what is known: what objectives are small beside."""
    known = ~np.isnan(case.A) & (True if case.omega is None else case.omega > 0)
    omega = 1.0 if case.omega is None else case.omega[known]
    return (omega * np.abs(case.A[known].astype(np.longdouble)) ** case.beta).sum()


def partial_fit(case: Case) -> str:
    if case.is_sparse or not isinstance(case.V, np.ndarray | torch.Tensor):
        case.V = case.A
    model, *_ = _model(case)
    half = max(1, len(case.A) // 2)
    for batch, exact in ((case.V[:half], case.A[:half]), (case.V[half:], case.A[half:])) * 2:
        if not len(exact):
            continue
        called(case, model.partial_fit, batch)
        H = as_array(model.components_)
        factors_are_finite(H)
        claim((H >= 0).all(), "factors_are_feasible", f"components_ has {H.min():g}")
        W = as_array(called(case, model.transform, batch))
        factors_are_finite(W)
    return "ANSWERED"


def warm_start(case: Case) -> str:
    """A second fit continues from the first, and ends no higher."""
    model, _, first, given, _ = _fitted(case, warm_start=True)
    case.start, given = None, {k: v for k, v in given.items() if k not in ("W", "H")}
    if model.init == "custom":
        model.set_params(init="auto")
    called(case, model.fit, case.V, **given)
    x = Answer.of(model.result_)
    factors_are_finite(x.W, x.H)
    if first is not None and 1 <= case.beta <= 2 and "time_limit" not in case.spec:
        again = holds_for_every_answer(case, x, on_w=_terms(model)[0], on_h=_terms(model)[1])
        room = 8 * (first.noise + again.noise) + 1e-6 * first.total
        if case.beta == 2:  # W comes from HᵀH, in which nearly equal components differ by rounding
            room += 64 * case.eps * np.nansum(case.A.astype(np.longdouble) ** 2)
        plain = not (case.on_w or case.on_h or model.symmetric)
        what = f"{again.total:g} after {first.total:g}"
        low = not plain or again.total <= first.total + room or not np.isfinite(float(room))
        claim(low, "a_warm_start_ends_no_higher", what)
    return x.status


def _terms(model: Any) -> tuple[list[Any], list[Any]]:
    m, n = len(model.result_.factors.W), model.n_features_in_
    other = model.alpha_W if model.alpha_H == "same" else model.alpha_H
    on = []
    for given, weight in ((model.regularize_W, model.alpha_W * n), (model.regularize_H, other * m)):
        added = [penalties.L1(weight * model.l1_ratio), penalties.L2(weight * (1 - model.l1_ratio))]
        on.append([*(given or ()), *(term for term in added if term.weight)])
    return on[0], [*on[1], *_known(model)]


def save_load(case: Case) -> str:
    model, x, *_ = _fitted(case)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        called(case, model.save, path)
        other = called(case, factormer.NMF.load, path)
    same = np.array_equal(as_array(other.components_), x.H.T)
    claim(same, "a_loaded_model_is_the_saved_one", "components_")
    claim(other.status_ is model.status_, "a_loaded_model_is_the_saved_one", "status_")
    numbers = np.allclose(other.trace_.rmse, model.trace_.rmse, equal_nan=True, rtol=1e-12, atol=0)
    claim(numbers, "a_loaded_model_is_the_saved_one", "trace_")
    if case.omega is None and "time_limit" not in case.spec:
        one = as_array(called(case, model.transform, case.V))
        two = as_array(called(case, other.transform, case.V))
        claim(np.array_equal(one, two), "a_loaded_model_is_the_saved_one", "transform")
    return x.status


def nnf(case: Case) -> str:
    model, given, on_w, on_h = _model(case)
    keywords = {k: v for k, v in model.get_params().items() if k != "n_components"}
    given = {k: v for k, v in given.items() if k in ("W", "H")}
    call = factormer.non_negative_factorization
    W, H, n_iter = called(case, call, case.V, n_components=model.n_components, **keywords, **given)
    W, H = as_array(W), as_array(H).T
    factors_are_finite(W, H)
    case.omega = case.omega if case.spec.get("known") in ("nan", "zeros") else None
    truth = objective(case.A, case.omega, W, H, case.beta, on_w, on_h, case.eps)
    zero = objective(case.A, case.omega, 0 * W, 0 * H, case.beta, (), (), case.eps)
    if case.beta == 2 and not case.spec.get("wrong") and not (on_w or on_h) and n_iter > 50:
        what = f"{truth.total:g}, and {zero.total:g} for factors of zeros"
        room = 8 * truth.noise + truth.entries * np.longdouble(np.finfo(case.dtype).tiny)
        claim(truth.total <= zero.total + room, "factors_beat_zeros", what)
    return "ANSWERED"


def nnf_fixed(case: Case) -> str:
    """For a given H the W is the best: beside scipy's nnls, where that applies."""
    unit = np.sqrt(float(np.nan_to_num(case.A, posinf=1.0).mean()) or 1.0)  # zeros have no unit
    H = unit * case.rng.random((case.rank, case.A.shape[1]))
    if case.spec["data"]["kind"] == "dependent":
        H = H[:1] + 1e-9 * H
    H = H.astype(case.dtype)
    names = ("solver", "max_iter", "time_limit")
    keywords = {k: v for k, v in options(case).items() if k in names}
    keywords |= {"beta_loss": case.spec.get("loss", "frobenius"), "update_H": False}
    if case.spec.get("known") in ("nan", "zeros"):
        keywords["missing"] = case.spec["known"]
    else:
        case.omega = None
    W, same, _ = called(case, factormer.non_negative_factorization, case.V, H=H, **keywords)
    W = as_array(W)
    factors_are_finite(W)
    claim((W >= 0).all(), "factors_are_feasible", f"W has {W.min():g}")
    claim(same is H, "a_given_H_is_returned")
    if case.beta == 2 and case.omega is None and case.A.size <= 3000:
        truth = objective(case.A, None, W, H.T.astype(float), eps=case.eps)
        try:
            best = nnls_objective(case.A, H.T.astype(float))
        except RuntimeError:  # scipy's own limit
            return "ANSWERED"
        room = 8 * truth.noise + 1e-6 * best
        room += 1e-12 * (case.A.astype(np.longdouble) ** 2).sum()
        grain = np.longdouble(np.finfo(case.dtype).smallest_subnormal)
        room += 16 * case.A.size * grain**2  # what an entry can be told to
        what = f"{truth.total:g}, by scipy's nnls {best:g}"
        claim(truth.total <= best + room, "coefficients_are_as_good_as_nnls", what)
    return "ANSWERED"
