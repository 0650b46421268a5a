"""The keywords of a specification, and how one of them is made wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from factormer import penalties
from tests.fuzz.build import Case
from tests.fuzz.claims import called


def options(case: Case) -> dict[str, Any]:
    """The keywords that `factorize` and `NMF` share."""
    spec = case.spec
    names = ("solver", "init", "accelerator", "tol", "max_iter", "time_limit")
    return {name: spec[name] for name in names if name in spec} | {"random_state": spec["seed"]}


def wronged(case: Case, keywords: dict[str, Any], **names: str) -> dict[str, Any]:
    """The keywords with one of them wrong, where the specification says so."""
    if not case.spec.get("wrong"):
        return keywords
    key, value = str(case.spec["wrong"][0]), case.spec["wrong"][1]
    if key in ("weights", "mask"):
        array = np.ones(case.A.shape)
        made = {"negative": -array, "nan": array * np.nan, "wrong-shape": np.ones(7),
                "all-zero": 0 * array, "huge": 1e300 * array, "tiny": 1e-300 * array,
                "half": array / 2}  # fmt: skip
        return keywords | {key: made[value]}
    if key == "penalty":
        name, *arguments = value
        kind = getattr(penalties, name, None)
        term = name if kind is None else called(case, kind, *arguments)
        return keywords | {"regularize_H": term}
    return keywords | {names.get(key, key): value}
