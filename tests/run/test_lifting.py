"""Starts for other losses: where they begin, whatever the shape and precision of V."""

import signal
from typing import Any

import numpy as np
import pytest
import torch

from factormer import factorize
from factormer.data import Dense
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.run.core import fits_from
from factormer.run.lifting import Lifted, Rooted, rooted, squared
from factormer.run.result import Status
from factormer.solvers.loop import iterated
from factormer.starts import Random
from tests.signals import interrupted_after


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


@torch.no_grad()
def test_of_the_fits_of_the_roots_the_divergence_chooses():
    """Which are no worse for V than any of them alone, up to rounding."""
    start, V = Rooted(n_best=4), counts(80, 70, 6)
    problem = Problem(Dense(V), 5, Beta(1.0))
    x = start(problem, torch.Generator().manual_seed(3))
    single = problem.V.to(torch.float32)
    roots = Problem(rooted(single), 5)
    starts = start._starts(roots, torch.Generator().manual_seed(3))
    assert len(starts) == 4
    fits = (iterated(roots, start.solver, y, start.on_roots).factors for y in starts)
    found = [float(problem.objective(problem.taken(squared(single, y, 3)))) for y in fits]
    assert float(problem.objective(x)) <= (1 + 1e-4) * min(found)


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
    assert "(side by side; then a few more" in str(best.plan)
    assert best.rmse <= best.trace.rmse.min() * (1 + 1e-6)


@pytest.mark.parametrize("n_init", [1, 3])
def test_a_time_limit_ends_the_fits_of_the_roots(n_init):
    asked: dict[str, Any] = {"loss": "kullback-leibler", "n_init": n_init, "time_limit": 1e-6}
    result = factorize(counts(200, 150, 4).numpy(), 4, **asked)
    assert result.status is Status.TIME_LIMIT
    assert np.isfinite(result.loss)


def test_fits_of_the_roots_are_those_of_the_reference(monkeypatch):
    V = counts(200, 150, 4)
    problem, start = Problem(Dense(V / V.mean()), 4), Rooted()
    fast = start(problem, torch.Generator().manual_seed(0))
    monkeypatch.setattr("factormer.run.core.core", lambda: None)
    slow = start(problem, torch.Generator().manual_seed(0))
    of_counts = Problem(problem.V, 4, Beta(1.0))
    assert float(of_counts.objective(fast)) == pytest.approx(
        float(of_counts.objective(slow)), rel=0.02
    )


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")
def test_an_interrupt_ends_the_fits_of_the_roots():
    """They would take minutes if nobody told them."""
    problem = Problem(Dense(counts(300, 200, 4)), 4)
    starts = [Random()(problem, torch.Generator().manual_seed(k)) for k in range(4)]
    with interrupted_after(0.3), pytest.raises(KeyboardInterrupt):
        fits_from(problem.V, starts, 10**8, 0.0)
