"""The demonstration: scikit-learn's digits, beside scikit-learn's own NMF, in two pictures."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import decomposition
from sklearn.datasets import load_digits

from factormer.engine import factorize
from factormer.plot import component_images, convergence
from factormer.solve import Result

_RANK = 16


class Comparison(NamedTuple):
    """Both fits of the digits, and where their pictures are."""

    result: Result
    seconds: float
    sklearn_rmse: float
    sklearn_seconds: float
    pictures: list[Path]


def demo(out: Path) -> Comparison:
    """Factorise the digits at rank 16 with the defaults and with scikit-learn's."""
    X = np.asarray(load_digits(return_X_y=True)[0])
    tick = time.perf_counter()
    result = factorize(X, _RANK)
    seconds = time.perf_counter() - tick

    tick = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may reach its iteration limit
        sklearn = decomposition.NMF(_RANK, random_state=0)  # pyright: ignore[reportArgumentType]
        W = sklearn.fit_transform(X)
    sklearn_seconds = time.perf_counter() - tick
    rmse = float(np.sqrt(np.mean((X - W @ sklearn.components_) ** 2)))

    out.mkdir(parents=True, exist_ok=True)
    images = result.H.T.reshape(_RANK, 8, 8)
    pictures = [out / "components.png", out / "convergence.png"]
    component_images(images, pictures[0], title="Digits: the 16 components")
    convergence({"factormer": result.trace}, pictures[1], level=("scikit-learn", rmse))
    return Comparison(result, seconds, rmse, sklearn_seconds, pictures)
