"""Nonnegative matrix factorization, made faster by a pretrained graph neural network."""

import factormer.starting  # noqa: F401 - before all that takes long to load

# isort: split
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


def __dir__() -> list[str]:
    return __all__
