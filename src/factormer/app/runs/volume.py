"""The weight and δ of a volume that was asked for without any, as text for the options of a run."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from factormer.app.read import Data
from factormer.app.runs.counts import Counts
from factormer.app.runs.fit import FitOptions
from factormer.data.observations import observe
from factormer.functions import with_volumes
from factormer.problem.penalties import Penalties, Volume
from factormer.run.request import Request

_BARE = "volume"


def with_weights(
    data: Data, options: FitOptions, rank: int, *, mask: Any = None, weights: Any = None
) -> FitOptions:
    """Return the options with numbers for each `volume` without any, found as `factorize` does."""
    asked = options.regularize_w, options.regularize_h
    if all(text.lower() != _BARE for texts in asked for text in texts):
        return options
    started, keywords = time.perf_counter(), options.keywords() | Counts(mask, weights).keywords()
    read = {name: keywords.pop(name) for name in ("mask", "weights", "missing", "device")}
    request = Request.of(observe(data.V, **read), rank, **keywords)
    problem = with_volumes(request, started).problem
    on_w, on_h = (
        tuple(_text(penalties) if text.lower() == _BARE else text for text in texts)
        for texts, penalties in zip(asked, (problem.on_w, problem.on_h), strict=True)
    )
    return replace(options, regularize_w=on_w, regularize_h=on_h)


def _text(penalties: Penalties) -> str:
    """Return the volume among these penalties as text, rounded to two digits."""
    (volume,) = (term for term in penalties.terms if isinstance(term, Volume))
    return f"{_BARE}:{volume.weight:.2g}:{volume.delta:.2g}"
