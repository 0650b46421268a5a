"""Starts for other losses: where they begin, whatever the shape and precision of V."""

from typing import Any

import numpy as np
import pytest
import torch

from factormer import factorize
from factormer.data import Dense
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.run.lifting import Lifted, Squared
from factormer.run.result import Status
from factormer.starts import Random, Rotated

SEVERAL = Squared(Rotated(), on_roots=80, on_counts=3, others=(Random(),))


def counts(m: int, n: int, r: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    mean = 5 * rng.exponential(size=(m, r)) @ rng.exponential(size=(r, n))
    return torch.tensor(rng.poisson(mean), dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("m", "n", "r"), [(90, 60, 4), (60, 90, 4), (30, 12, 9)])
def test_roots_lead_near_the_end(m, n, r, dtype):
    problem = Problem(Dense(counts(m, n, 4).to(dtype)), r, Beta(1.0))
    x = SEVERAL(problem, torch.Generator().manual_seed(0))
    assert all((F > 0).all() and F.isfinite().all() and F.dtype == dtype for F in x)
    far = Lifted(Random(), n_iter=0)(problem, torch.Generator().manual_seed(0))
    assert problem.objective(x) < 0.2 * problem.objective(far)


@torch.no_grad()
@pytest.mark.parametrize("width", [1, 2])
def test_roots_lead_to_the_same_point_whatever_the_threads(width):
    V = counts(200, 150, 4).numpy()
    x = factorize(V, 4, loss="kullback-leibler", max_iter=3, tol=0)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(width)
        y = factorize(V, 4, loss="kullback-leibler", max_iter=3, tol=0)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(x.W, y.W, rtol=1e-9, atol=1e-9)


def test_roots_of_counts_that_are_mostly_zero():
    """They become a sparse matrix, which has a start of its own."""
    V = counts(200, 150, 4).numpy() * (np.random.default_rng(1).random((200, 150)) < 0.1)
    result = factorize(V, 3, loss="kullback-leibler", max_iter=5)
    assert np.isfinite(result.loss)


def test_several_runs_on_counts_are_made_side_by_side():
    V = counts(200, 150, 4).numpy()
    one = factorize(V, 6, loss="kullback-leibler", max_iter=60)
    best = factorize(V, 6, loss="kullback-leibler", max_iter=60, n_init=3)
    assert best.loss <= (1 + 1e-3) * one.loss
    assert "3 runs" in str(best.plan)
    assert "(side by side" in str(best.plan)
    assert best.rmse <= best.trace.rmse.min() * (1 + 1e-6)


@pytest.mark.parametrize("n_init", [1, 3])
def test_a_time_limit_ends_the_fits_of_the_roots(n_init):
    asked: dict[str, Any] = {"loss": "kullback-leibler", "n_init": n_init, "time_limit": 1e-6}
    result = factorize(counts(200, 150, 4).numpy(), 4, **asked)
    assert result.status is Status.TIME_LIMIT
    assert np.isfinite(result.loss)


def test_fits_of_the_roots_are_those_of_the_reference():
    V = counts(200, 150, 4).numpy()
    asked: dict[str, Any] = {"loss": "kullback-leibler", "max_iter": 1, "tol": 0}
    fast, slow = (factorize(V, 4, **asked, engine=e).loss for e in ("auto", "reference"))
    assert fast == pytest.approx(slow, rel=0.02)
