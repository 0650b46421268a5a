"""The weight of a volume that suits the data: the misfit of the fit without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from factormer.app.read import Data
from factormer.app.runs.counts import Counts
from factormer.app.runs.fit import FitOptions
from factormer.functions import factorize

_LITTLE = 0.001  # of the mean square of components, below which one counts little


def volume(misfit: float, X: Float[np.ndarray, "n r"]) -> str:
    """The constraint as text, for the components X of a fit with that misfit."""
    delta = _LITTLE * float(np.square(X.astype(np.float64)).sum()) / X.shape[1]
    return f"volume:{misfit:.2g}:{delta:.2g}"


def with_weights(
    data: Data, options: FitOptions, rank: int, *, mask: Any = None, weights: Any = None
) -> FitOptions:
    """The options with numbers where a volume was asked for without: those of a fit without it."""
    names = ("regularize_w", "regularize_h")
    asked = {name: tuple(getattr(options, name)) for name in names}
    bare = {name: tuple(t for t in asked[name] if t.lower() != "volume") for name in names}
    if bare == asked:
        return options
    plain = replace(options, **bare, n_init=1, repeats=None, holdout=None)
    keywords = plain.keywords() | Counts(mask, weights).keywords()
    result = factorize(data.V, rank, **keywords)
    misfit = float(result.rmse) ** 2 * data.V.shape[0] * data.V.shape[1] / 2
    texts = {"regularize_w": volume(misfit, result.W), "regularize_h": volume(misfit, result.H)}
    found = {
        name: tuple(texts[name] if t.lower() == "volume" else t for t in asked[name])
        for name in names
    }
    return replace(options, **found)
