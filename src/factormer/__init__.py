"""Nonnegative matrix factorization, V ≈ W Hᵀ with W, H ≥ 0, for many losses and kinds of data.

Names are loaded when they are first asked for: torch takes more than a second, and scikit-learn,
which only estimators and `patch_sklearn` need, almost another.
"""

import factormer.starting  # noqa: F401 - before all that takes long to load

# isort: split
import sys
from importlib import import_module
from types import ModuleType
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
    from factormer.select.metaprograms import MetaPrograms, metaprograms
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
    "MetaPrograms",
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
    "metaprograms",
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
    "factormer.select.metaprograms": ("MetaPrograms", "metaprograms"),
    "factormer.select.ranks.choice": ("Choice",),
    "factormer.select.ranks.select": ("select_rank",),
    "factormer.select.validate": ("CrossValidation", "cross_validate"),
}
_DOORS = ("datasets", "losses", "penalties", "plot", "tl")  # modules to reach through this one


class _Public:
    """A public name of the package, loaded at its first use; it can be set like any other."""

    def __init__(self, name: str, module: str) -> None:
        self._name, self._module = name, module

    def __get__(self, package: Any, owner: Any = None) -> Any:
        if package is None:  # asked of the class
            return self
        if vars(package).get(self._name, self) is self:
            vars(package)[self._name] = getattr(import_module(self._module), self._name)
        return vars(package)[self._name]

    def __set__(self, package: Any, value: Any) -> None:
        vars(package)[self._name] = value

    def __delete__(self, package: Any) -> None:
        vars(package)[self._name] = self

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Stand in for the name where somebody looks it up in `vars(factormer)`, as `eval` does."""
        return getattr(import_module(self._module), self._name)(*args, **options)


class _Package(ModuleType):
    """The module itself; a name in its dictionary that is not loaded yet is loaded when read."""


for _module, _names in _MODULES.items():
    for _name in _names:
        globals()[_name] = _Public(_name, _module)
        setattr(_Package, _name, globals()[_name])
sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """A module that is reached through this one."""
    if name not in _DOORS:
        raise AttributeError(f"module 'factormer' has no attribute {name!r}", name=name)
    return import_module(f"factormer.{name}")


def __dir__() -> list[str]:
    return __all__
