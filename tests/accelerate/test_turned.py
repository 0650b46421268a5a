"""The Factormer for every rank as a start and as an acceleration."""

import pytest
import torch

from factormer import factorize
from factormer.accelerate.base import Accelerated
from factormer.accelerate.turned import (
    Turned,
    TurnedAccelerator,
    _most_nonnegative,
    balanced,
)
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.zoo import load_any_factormer
from factormer.problem.problem import Problem
from factormer.solvers.hals import HALS
from factormer.starts import Random


def problem(m=30, n=24, r=5, batch=(), seed=0) -> Problem:
    rng = torch.Generator().manual_seed(seed)
    W, H = (torch.rand(*batch, k, r, generator=rng).double() for k in (m, n))
    noise = torch.rand(*batch, m, n, generator=rng).double()
    return Problem(Dense(W @ H.mT * (0.9 + 0.2 * noise)), r)


@pytest.fixture(scope="module")
def model():
    return load_any_factormer("any-rank-init")


@pytest.mark.parametrize("r", [1, 2, 5, 24])
def test_start_is_feasible_and_better_than_chance(model, r):
    one = problem(r=r)
    x = Turned(model)(one, torch.Generator().manual_seed(0))
    assert all((F >= 0).all() and F.isfinite().all() for F in x)
    assert one.rmse(x) < one.rmse(Random()(one, torch.Generator().manual_seed(0)))


def test_tries_are_judged_matrix_by_matrix():
    tries = torch.tensor([[1.0, 1.0], [-1.0, 3.0], [2.0, -2.0]])[..., None, None]
    best = _most_nonnegative(Factors(tries, tries.abs()))
    torch.testing.assert_close(best.W.flatten(), torch.tensor([1.0, 1.0]))
    torch.testing.assert_close(best.H.flatten(), torch.tensor([1.0, 1.0]))
    best = _most_nonnegative(Factors(tries[1:], tries[1:].abs()))
    torch.testing.assert_close(best.W.flatten(), torch.tensor([2.0, 3.0]))


def test_start_of_a_stack_is_as_good_as_that_of_its_members(model):
    stack = problem(batch=(3,))
    assert isinstance(stack.V, Dense)
    x = Turned(model)(stack, torch.Generator().manual_seed(0))
    for k, error in enumerate(stack.rmse(x)):
        alone = Problem(Dense(stack.V.entries[k]), stack.rank)
        single = alone.rmse(Turned(model)(alone, torch.Generator().manual_seed(0)))
        assert error < 1.5 * single


@pytest.mark.parametrize("V", [torch.zeros(6, 5), torch.ones(6, 5)], ids=["zero", "constant"])
def test_start_of_degenerate_data_is_finite(model, V):
    x = Turned(model)(Problem(Dense(V.double()), 3), torch.Generator().manual_seed(0))
    assert all((F >= 0).all() and F.isfinite().all() for F in x)


def test_accelerated_is_never_worse_than_the_plain_step(model):
    one = problem(r=4)
    x0 = Random()(one, torch.Generator().manual_seed(1))
    solver = Accelerated(HALS(), TurnedAccelerator(model), n_accel=1)
    with torch.no_grad():
        plain = HALS().step(one, HALS().init(one, x0)).factors
        turned = solver.step(one, solver.init(one, x0)).factors
    assert one.objective(turned) < one.objective(plain)
    assert all((F >= 0).all() and F.isfinite().all() for F in turned)


def test_balanced_has_the_same_product():
    x = Factors(torch.rand(5, 2), torch.rand(4, 2) * 9)
    y = balanced(x)
    torch.testing.assert_close(y.W @ y.H.mT, x.W @ x.H.mT)
    torch.testing.assert_close(y.W.norm(dim=0), y.H.norm(dim=0))


def test_by_name():
    rng = torch.Generator().manual_seed(0)
    V = torch.rand(20, 3, generator=rng) @ torch.rand(3, 15, generator=rng)
    result = factorize(V.double(), 3, init="any-rank-init", max_iter=5)
    assert "any-rank-init" in str(result.plan)
