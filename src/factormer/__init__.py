"""Nonnegative matrix factorization, made faster by a pretrained graph neural network."""

import factormer.starting  # noqa: F401 - before all that takes long to load

# isort: split
from factormer.estimator.functional import custom_start as custom_start
from factormer.estimator.functional import non_negative_factorization as non_negative_factorization
from factormer.estimator.nmf import NMF as NMF
from factormer.functions import explain as explain
from factormer.functions import factorize as factorize
from factormer.nn.zoo import load_model as load_model
from factormer.nn.zoo import models as models
from factormer.run.solve import Result as Result
from factormer.run.solve import Status as Status
from factormer.run.solve import Trace as Trace
