"""Nonnegative matrix factorization, V ≈ W Hᵀ with W, H ≥ 0, for many losses and kinds of data.

Names are loaded when they are first asked for: torch takes more than a second, and scikit-learn,
which only estimators and `patch_sklearn` need, almost another.
"""

import factormer.starting  # noqa: F401 - before all that takes long to load

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from factormer.clients.patch import patch, unpatch
    from factormer.clients.sklearn import patch_sklearn, unpatch_sklearn
    from factormer.estimator.functional import custom_start, non_negative_factorization
    from factormer.estimator.minibatch import MiniBatchNMF
    from factormer.estimator.nmf import NMF
    from factormer.functions import explain, factorize, factorize_many
    from factormer.many.ragged import Ragged
    from factormer.many.results import Results
    from factormer.nn.zoo import load_model, models
    from factormer.run.result import Result, Status
    from factormer.run.trace import Trace
    from factormer.select.agreement import Consensus
    from factormer.select.consensus import consensus
    from factormer.select.loss import LossChoice, select_loss
    from factormer.select.ranks.choice import Choice
    from factormer.select.ranks.select import select_rank
    from factormer.select.validate import CrossValidation, cross_validate

__version__ = "0.1.0"
__all__ = [
    "NMF",
    "Choice",
    "Consensus",
    "CrossValidation",
    "LossChoice",
    "MiniBatchNMF",
    "Ragged",
    "Result",
    "Results",
    "Status",
    "Trace",
    "__version__",
    "consensus",
    "cross_validate",
    "custom_start",
    "explain",
    "factorize",
    "factorize_many",
    "load_model",
    "models",
    "non_negative_factorization",
    "patch",
    "patch_sklearn",
    "select_loss",
    "select_rank",
    "unpatch",
    "unpatch_sklearn",
]
_MODULES = {
    "factormer.clients.patch": ("patch", "unpatch"),
    "factormer.clients.sklearn": ("patch_sklearn", "unpatch_sklearn"),
    "factormer.estimator.functional": ("custom_start", "non_negative_factorization"),
    "factormer.estimator.minibatch": ("MiniBatchNMF",),
    "factormer.estimator.nmf": ("NMF",),
    "factormer.functions": ("explain", "factorize", "factorize_many"),
    "factormer.many.ragged": ("Ragged",),
    "factormer.many.results": ("Results",),
    "factormer.nn.zoo": ("load_model", "models"),
    "factormer.run.result": ("Result", "Status"),
    "factormer.run.trace": ("Trace",),
    "factormer.select.agreement": ("Consensus",),
    "factormer.select.consensus": ("consensus",),
    "factormer.select.loss": ("LossChoice", "select_loss"),
    "factormer.select.ranks.choice": ("Choice",),
    "factormer.select.ranks.select": ("select_rank",),
    "factormer.select.validate": ("CrossValidation", "cross_validate"),
}
_DOORS = ("datasets", "losses", "penalties", "plot", "tl")  # modules to reach through this one
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name, loaded at its first use."""
    if name in _DOORS:
        return import_module(f"factormer.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'factormer' has no attribute {name!r}", name=name)
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
