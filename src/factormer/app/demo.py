"""The demonstration: scikit-learn's digits, by factormer and by scikit-learn, in two pictures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import decomposition
from sklearn.datasets import load_digits

from factormer.app.plot import component_images, convergence
from factormer.functions import factorize
from factormer.run.result import Result

_RANK = 16


class Seconds(NamedTuple):
    """Seconds of a first call, which also loads or compiles code, and of a second."""

    first: float
    second: float


class Comparison(NamedTuple):
    """Both fits of the digits, and where their pictures are."""

    result: Result
    seconds: Seconds
    sklearn_rmse: float
    sklearn_seconds: Seconds
    pictures: list[Path]


def demo(out: Path) -> Comparison:
    """Factorize the digits at rank 16 with the defaults and with scikit-learn's."""
    X = np.asarray(load_digits(return_X_y=True)[0])
    result, ours = _twice(lambda: factorize(X, _RANK))
    sklearn = decomposition.NMF(_RANK, random_state=0)  # pyright: ignore[reportArgumentType]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may reach its iteration limit
        W, theirs = _twice(lambda: sklearn.fit_transform(X))
    rmse = float(np.sqrt(np.mean((X - W @ sklearn.components_) ** 2)))

    out.mkdir(parents=True, exist_ok=True)
    images = result.H.T.reshape(_RANK, 8, 8)
    pictures = [out / "components.png", out / "convergence.png"]
    component_images(images, pictures[0], title="Digits: the 16 components")
    convergence({"factormer": result.trace}, pictures[1], level=("scikit-learn", rmse))
    return Comparison(result, ours, rmse, theirs, pictures)


def _twice(run: Callable[[], Any]) -> tuple[Any, Seconds]:
    """Call twice; return the answer, and the seconds of the first call and of the second."""
    tick = time.perf_counter()
    run()
    tock = time.perf_counter()
    done = run()
    return done, Seconds(tock - tick, time.perf_counter() - tock)
