"""Nonnegative matrix factorization, made faster by a pretrained graph neural network."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from factormer.engine import factorize as factorize
from factormer.nn.zoo import load_model as load_model
from factormer.nn.zoo import models as models
from factormer.solve import Result as Result
from factormer.solve import Status as Status
from factormer.solve import Trace as Trace

if TYPE_CHECKING:
    from factormer.estimator import NMF as NMF
    from factormer.functional import custom_start as custom_start
    from factormer.functional import non_negative_factorization as non_negative_factorization

_LATER = {
    "NMF": "factormer.estimator",
    "custom_start": "factormer.functional",
    "non_negative_factorization": "factormer.functional",
}


def __getattr__(name: str) -> Any:
    """Import the estimator when it is first wanted: scikit-learn takes half as long as torch."""
    if name not in _LATER:
        raise AttributeError(f"module 'factormer' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_LATER[name]), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
