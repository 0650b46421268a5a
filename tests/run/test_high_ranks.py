"""High ranks: sketches in float32 first, and answers as good as ever."""

from typing import Any

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
    plan = choose(Request(problem=problem, limits=Limits(max_iter=50)))
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


def planned(V: np.ndarray, rank: int, **options: Any) -> str:
    problem = Problem(Dense(torch.from_numpy(V)), rank)
    return str(choose(Request(problem=problem, **options)))


def test_a_plan_says_that_slow_runs_ask_the_network():
    V = np.ones((1500, 1200))
    says = "with the network any-rank if the run is slow"
    assert says in planned(V, RANK)
    for options in ({"accelerator": None}, {"n_init": 3}, {"solver": "her"}):
        assert says not in planned(V, RANK, **options)
    assert says not in planned(V, 20)
    assert says not in planned(np.ones((60, 50)), 40)


def smooth(m: int, n: int, rank: int) -> np.ndarray:
    """Mixtures of smooth curves that are much alike, which take many iterations."""
    rng, t = np.random.default_rng(0), np.linspace(0, 1, n)
    centre, width = rng.random((rank, 1)), 0.05 + 0.3 * rng.random((rank, 1))
    curves = 0.1 + np.exp(-0.5 * ((t - centre) / width) ** 2)
    return rng.dirichlet(np.full(rank, 0.1), m) @ curves + 0.01 * rng.random((m, n))


def test_a_slow_run_asks_the_network_and_a_fast_one_does_not():
    for V, slow in ((smooth(900, 300, 50), True), (parts(900, 700, 40), False)):
        options: dict[str, Any] = {"max_iter": 40, "tol": 0.0}
        auto, plain = (factorize(V, 36, accelerator=a, **options) for a in ("auto", None))
        assert np.array_equal(auto.W, plain.W) is not slow
        assert float(auto.rmse) <= float(plain.rmse) * 1.001


@pytest.mark.slow
def test_float32_costs_no_digits_of_a_fit_that_is_nearly_exact():
    V = parts(1500, 1200, RANK)
    result = factorize(V, RANK, max_iter=300, accelerator=None)
    assert float(result.rmse) < 1e-3 * V.mean()
    assert result.W.dtype == np.float64
