"""The public calls, each with the claims that are its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import factormer
from factormer.functions import starting_point
from tests.fuzz import models
from tests.fuzz.build import Case
from tests.fuzz.claims import (
    Answer,
    Broken,
    Refused,
    as_array,
    called,
    claim,
    factors_are_finite,
    holds_for_every_answer,
    runs_are_alike,
)
from tests.fuzz.files import command_line
from tests.fuzz.options import options, wronged


def factorize(case: Case) -> str:
    keywords = options(case) | case.counts | {"loss": case.spec.get("loss", "frobenius")}
    if "sigma" in keywords:
        keywords["weights"] = _precision(keywords.pop("sigma"))
    keywords |= {"regularize_W": case.on_w, "regularize_H": case.on_h, "rank": case.rank}
    if case.spec.get("symmetric"):
        keywords["symmetric"] = True
    if case.start is not None:
        keywords |= {"W": case.start[0], "H": case.start[1]}
    keywords = wronged(case, keywords)
    result = called(case, factormer.factorize, case.V, **keywords)
    x = Answer.of(result)
    if not case.spec.get("wrong"):
        holds_for_every_answer(case, x)
    if case.spec.get("twice") and "time_limit" not in case.spec:
        runs_are_alike(x, Answer.of(factormer.factorize(case.V, **keywords)))
    return x.status


def stack(case: Case) -> str:
    """A stack equals its members, where nothing depends on the others: tol 0, one start."""
    if case.A.size > 3000:
        return "SKIPPED"
    case.spec = {k: v for k, v in case.spec.items() if k != "time_limit"}
    V = torch.stack([torch.from_numpy(case.A * (k + 1) / 4) for k in range(case.spec["count"])])
    V = V.to(torch.float32 if case.dtype == np.float32 else torch.float64)
    loss = case.spec.get("loss", "frobenius")
    keywords = options(case) | {"tol": 0.0, "max_iter": min(case.spec["max_iter"], 10)}
    keywords |= {"loss": loss, "init": "custom", "engine": "reference"}  # the one for stacks
    if keywords.get("solver", "auto") == "auto":  # which is not the same for one and for many
        keywords["solver"] = "hals" if loss == "frobenius" else "mu"
    m, n = case.A.shape
    unit = np.sqrt(max(float(np.nan_to_num(case.A).mean()), 1e-300))
    W, H = (
        torch.from_numpy(unit * case.rng.random((len(V), size, case.rank))).to(V.dtype)
        for size in (m, n)
    )
    keywords = wronged(case, keywords)
    rank = keywords.pop("rank", case.rank)
    whole = called(case, factormer.factorize, V, rank, W=W, H=H, **keywords)
    factors_are_finite(as_array(whole.W), as_array(whole.H))
    for k, error in enumerate(np.atleast_1d(whole.error)):
        try:
            one = called(case, factormer.factorize, V[k], rank, W=W[k], H=H[k], **keywords)
        except Refused as refusal:
            what = f"only members are refused: {refusal}"
            raise Broken("a_stack_is_its_members", what) from refusal
        size = float(torch.sqrt((V[k].double() / V[k].max()).square().mean()) * V[k].max())
        unit = np.longdouble(size) ** (case.beta / 2)
        single = case.dtype == np.float32 or "accelerator" in case.spec  # as networks compute
        # Components beyond the rank of V are nearly dependent, which makes rounding larger.
        many = case.rank > min(m, n)
        # ADMM on what is not convex grows it: alone, V·(1 + 1e-15) moves by 4e-3, members by less.
        grown = keywords["solver"] == "ao-admm" and not 1 <= case.beta <= 2
        if case.dtype == np.float32 and case.spec["data"]["kind"] == "wide-range":
            continue  # entries that span twelve orders: float32 has no digits for the smaller ones
        share = 1e-2 if grown else 1e-3 if single else 1e-4 if many else 1e-6
        room = share * max(unit, float(one.error))
        close = abs(float(one.error) - error) <= room or not np.isfinite(size)
        claim(close, "a_stack_is_its_members", f"{error:g} within, {one.error:g} alone")
    return whole.status.name


def many(case: Case) -> str:
    """Each of several problems is answered as it would be alone."""
    keywords = options(case) | {"loss": case.spec.get("loss", "frobenius")}
    keywords |= {"regularize_W": case.on_w, "regularize_H": case.on_h, "ranks": case.rank}
    if keywords.get("init") == "custom":
        keywords.pop("init")
    keywords = wronged(case, keywords, rank="ranks")
    results = called(case, factormer.factorize_many, [case.V, case.V], **keywords)
    if "time_limit" in case.spec or case.spec.get("wrong"):
        return "ANSWERED"
    keywords["random_state"] += 1
    rank = keywords.pop("ranks")
    one, found = called(case, factormer.factorize, case.V, rank, **keywords), results[1]
    factors_are_finite(as_array(found.W), as_array(found.H))
    A = np.nan_to_num(case.A.astype(float))
    unit = np.longdouble(np.sqrt(np.square(A / (A.max() or 1)).mean()) * A.max()) ** (case.beta / 2)
    room = 1e-5 * max(unit, float(one.error))
    close = abs(float(one.error) - float(found.error)) <= room or not np.isfinite(unit)
    claim(close, "many_are_as_alone", f"{found.error:g} among many, {one.error:g} alone")
    return found.status.name


def custom_start(case: Case) -> str:
    return _start(case, factormer.custom_start)


def start(case: Case) -> str:
    return _start(case, starting_point)


def _start(case: Case, function: Callable[..., Any]) -> str:
    keywords = {k: v for k, v in options(case).items() if k in ("init", "random_state")}
    if keywords.get("init") == "custom":
        keywords["init"] = "auto"
    W, H = called(case, function, case.V, case.rank, **keywords)
    for F in (as_array(W), as_array(H)):
        factors_are_finite(F)
        claim((F >= 0).all(), "factors_are_feasible", f"{F.min():g}")
    return "ANSWERED"


def _precision(sigma: Any) -> Any:
    if hasattr(sigma, "tocsr"):
        weights = sigma.copy()
        weights.data = weights.data**-2.0
        return weights
    return sigma**-2.0


ENTRIES: dict[str, Callable[[Case], str]] = {
    "factorize": factorize,
    "stack": stack,
    "many": many,
    "fit_transform": models.fit_transform,
    "transform": models.transform,
    "partial_fit": models.partial_fit,
    "warm_start": models.warm_start,
    "save_load": models.save_load,
    "nnf": models.nnf,
    "nnf_fixed": models.nnf_fixed,
    "custom_start": custom_start,
    "starting_point": start,
    "command_line": command_line,
}
