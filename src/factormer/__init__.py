"""Nonnegative matrix factorization, made faster by a pretrained graph neural network."""

from typing import TYPE_CHECKING, Any

from factormer.engine import factorize as factorize
from factormer.nn.zoo import load_model as load_model
from factormer.nn.zoo import models as models
from factormer.solve import Result as Result
from factormer.solve import Status as Status
from factormer.solve import Trace as Trace

if TYPE_CHECKING:
    from factormer.estimator import NMF as NMF


def __getattr__(name: str) -> Any:
    """Import the estimator when it is first wanted: scikit-learn takes half as long as torch."""
    if name != "NMF":
        raise AttributeError(f"module 'factormer' has no attribute {name!r}")
    from factormer.estimator import NMF

    return globals().setdefault("NMF", NMF)


def __dir__() -> list[str]:
    return sorted({*globals(), "NMF"})
