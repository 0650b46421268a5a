"""Starts for other losses: where they begin, whatever the shape and precision of V."""

import numpy as np
import pytest
import torch

from factormer import factorize
from factormer.data import Dense
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.run.lifting import Lifted, Rooted
from factormer.starts import Random


def counts(m: int, n: int, r: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    mean = 5 * rng.exponential(size=(m, r)) @ rng.exponential(size=(r, n))
    return torch.tensor(rng.poisson(mean), dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("m", "n", "r"), [(90, 60, 4), (60, 90, 4), (30, 12, 9)])
def test_roots_lead_near_the_end(m, n, r, dtype):
    problem = Problem(Dense(counts(m, n, 4).to(dtype)), r, Beta(1.0))
    x = Rooted()(problem, torch.Generator().manual_seed(0))
    assert all((F > 0).all() and F.isfinite().all() and F.dtype == dtype for F in x)
    far = Lifted(Random(), n_iter=0)(problem, torch.Generator().manual_seed(0))
    assert problem.objective(x) < 0.2 * problem.objective(far)


def test_roots_of_counts_that_are_mostly_zero():
    """They become a sparse matrix, which has a start of its own."""
    V = counts(200, 150, 4).numpy() * (np.random.default_rng(1).random((200, 150)) < 0.1)
    result = factorize(V, 3, loss="kullback-leibler", max_iter=5)
    assert np.isfinite(result.loss)
