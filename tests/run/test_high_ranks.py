"""High ranks: sketches in float32 first, and answers as good as ever."""

import numpy as np
import pytest
import torch

from factormer import factorize
from factormer.data import Dense, LowRank
from factormer.problem.problem import Problem
from factormer.run.choose import choose
from factormer.run.execute import _on_views
from factormer.run.request import Limits, Request

RANK = 60


def parts(m: int, n: int, rank: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    W, H = (rng.exponential(size=(k, rank)) * (rng.random((k, rank)) < 0.3) for k in (m, n))
    return W @ H.T


def first_views(V: np.ndarray, rank: int) -> list[tuple[type, torch.dtype]]:
    problem = Problem(Dense(torch.from_numpy(V)), rank)
    request = Request(problem=problem, limits=Limits(max_iter=50), engine="reference")
    plan = choose(request)
    stages = _on_views(plan, problem, [], torch.Generator().manual_seed(0), 0)
    return [(type(stage.problem.V), stage.problem.V.dtype) for stage in stages]


def test_a_heavy_sketch_is_worked_on_in_float32_first():
    views = first_views(parts(1500, 1200, 70), RANK)
    assert views[:2] == [(LowRank, torch.float32), (LowRank, torch.float64)]
    assert views[-1] == (Dense, torch.float64)


def test_a_small_sketch_is_worked_on_in_float64_alone():
    views = first_views(parts(300, 250, 12), 8)
    assert (LowRank, torch.float64) in views
    assert (LowRank, torch.float32) not in views


def test_no_default_asks_a_network():
    for shape, rank in (((1500, 1200), RANK), ((1500, 1200), 20), ((60, 50), 40)):
        problem = Problem(Dense(torch.ones(shape, dtype=torch.float64)), rank)
        assert "network" not in str(choose(Request(problem=problem)))


@pytest.mark.slow
def test_float32_costs_no_digits_of_a_fit_that_is_nearly_exact():
    V = parts(1500, 1200, RANK)
    result = factorize(V, RANK, max_iter=300, accelerator=None)
    assert float(result.rmse) < 1e-3 * V.mean()
    assert result.W.dtype == np.float64
