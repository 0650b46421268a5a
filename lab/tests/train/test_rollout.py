"""The trajectory that is trained on is that of algorithms 1 and 2."""

from itertools import islice

import pytest
import torch
from tests.networks import random_network, small_config
from torch.utils._python_dispatch import TorchDispatchMode

from factormer.data import Dense
from factormer.data.factors import Factors, concatenate
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM
from factormer_lab.train.objective import unrolled_loss
from factormer_lab.train.rollout import rollout


@pytest.fixture
def case(rng) -> tuple[Problem, Factors]:
    """A matrix of mean 1, as the networks see it."""
    V, W, H = (torch.rand(s, generator=rng, dtype=torch.float64) for s in ((7, 5), (7, 3), (5, 3)))
    return Problem(Dense(V / V.mean()), 3), Factors(W, H)


def assert_close(x: Factors, y: Factors) -> None:
    torch.testing.assert_close(x.W, y.W)
    torch.testing.assert_close(x.H, y.H)


def admm(problem: Problem, x: Factors) -> Factors:
    return AOADMM().step(problem, AOADMM().init(problem, x)).factors


@pytest.mark.parametrize("variant", ["paper", "refining"])
def test_initialization_is_the_network_and_then_the_solver(variant, case):
    problem, x0 = case
    model = random_network(small_config(variant=variant))
    x1, x2, x3 = islice(rollout(model, problem, x0, n_accel=5), 3)
    assert_close(x1, model(x0, problem.V))
    assert_close(x2, admm(problem, x1))
    assert_close(x3, admm(problem, x2))


@pytest.mark.parametrize("variant", ["paper", "refining"])
def test_acceleration_follows_each_of_its_iterations_by_the_network(variant, case):
    problem, x0 = case
    model = random_network(small_config(variant=variant, n_points=2))
    x1, x2, x3 = islice(rollout(model, problem, x0, n_accel=2), 3)
    assert_close(x1, model(concatenate(x0, admm(problem, x0)), problem.V))
    assert_close(x2, model(concatenate(x1, admm(problem, x1)), problem.V))
    assert_close(x3, admm(problem, x2))  # plain from here on


@pytest.mark.parametrize("n_points", [1, 2])
def test_gradients_reach_every_weight(n_points, case):
    problem, x0 = case
    model = random_network(small_config(n_points=n_points))
    *_, x = islice(rollout(model, problem, x0, n_accel=2), 3)
    problem.objective(x).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_learned_start_is_free_of_the_scale(case):
    problem, x0 = case
    model, c = random_network(small_config()), torch.tensor(50.0).double()
    scaled = Problem(problem.V.scaled(c), 3)
    x, y = (next(rollout(model, *p, n_accel=2)) for p in ((problem, x0), (scaled, x0.scale(c))))
    assert_close(y, x.scale(c))


class Asked(TorchDispatchMode):
    """Notes when a number is asked for, for which a recorded step would have to wait."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.numbers += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("n_points", [1, 2])
@pytest.mark.parametrize("normalize", [False, True])
def test_nothing_waits_for_a_number(n_points, normalize, rng):
    """So that a GPU can record it."""
    V, W, H = (torch.rand(2, *s, generator=rng) for s in ((7, 5), (7, 3), (5, 3)))
    problem = Problem(Dense(V, torch.ones(2, 7).bool(), torch.ones(2, 5).bool()), 3)
    model = random_network(small_config(n_points=n_points, normalize=normalize)).float()
    with Asked() as asked:
        points = list(islice(rollout(model, problem, Factors(W, H), n_accel=2), 4))
        unrolled_loss(problem, points, gamma=0.5, objective="squared").backward()
    assert asked.numbers == 0
