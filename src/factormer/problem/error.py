"""The error of a point in the unit of V, where squares of V itself might overflow."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Matrix
from factormer.data.factors import Factors
from factormer.problem.problem import Problem


def plain_rmse(V: Matrix, x: Factors) -> Float[Tensor, ""]:
    """‖W Hᵀ − V‖ / √(mn); of V divided by its mean if squares would overflow."""
    problem = Problem(V, x.W.shape[1])
    mean, root, unit = float(problem.mean()), torch.finfo(V.dtype).max ** 0.25, None
    if mean and not 1 / root < mean < root:
        problem, unit = problem.normalized()
        x = x.scale(1 / unit)
    error = (problem.sq_error(x) / problem.size()).sqrt()
    return error if unit is None else unit * error


def rmse(problem: Problem, x: Factors) -> Float[Tensor, "*b"]:
    """Return √(2·objective / entries) at x, as a trace holds it; infinite beyond float64."""
    if problem.is_plain and x.W.dim() == 2:
        error = plain_rmse(problem.V, x)
    else:
        scaled, mean = problem.normalized()
        error = problem.unit(mean) * scaled.rmse(scaled.scaled_back(x, 1 / mean))
    return torch.where(error.isnan(), torch.inf, error)
