"""The compiled any-rank network and its iterations, against their twins in torch."""

from itertools import islice

import pytest
import torch

from factormer.accelerate.anyrank import AnyRank, Memory
from factormer.accelerate.her import LearnedHER
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.anyrank import Pooled
from factormer.nn.zoo import load_any_rank
from factormer.problem.problem import Problem
from factormer.solvers.hals import HALS
from tests.kernels.test_loops import STORES, draw, draw_problem
from tests.networks import random_any_rank
from tests.steps import steps


def memory_of(rng: torch.Generator, accelerator: AnyRank, strikes: float) -> Memory:
    problem, x0 = draw_problem(rng)
    numbers = (torch.tensor(v, dtype=torch.float64) for v in (3.0, 12.0, strikes))
    return accelerator.init(problem, x0)._replace(
        **dict(zip(("age", "t", "strikes"), numbers, strict=True))
    )


def products_of(rng: torch.Generator, r: int) -> tuple[Pooled, torch.Tensor]:
    """Inner products of moves of two factors, and their Gram matrices."""
    sides, grams = [], []
    for n in (9, 14):
        X, D, P, S, T, U = (torch.randn(n, r, generator=rng).double() for _ in range(6))
        X = X.clamp(min=0)
        pairs = ((X, X), (X, D), (D, D), (D, P), (P, P), (S, D), (S, S), (S, T), (S, U), (T, T))
        dots = [(a * b).sum(dim=0) for a, b in (*pairs, (T, U), (U, U))]
        sides.append(torch.stack([*dots, (X <= 0).double().mean(dim=0)]))
        grams.append(X.mT @ X)
    return Pooled(*torch.stack(sides, dim=1)), torch.stack(grams)


@pytest.mark.parametrize("strikes", [0.4, 9.0], ids=["trusted", "not trusted"])
@pytest.mark.parametrize("r", [1, 2, 5, 17])
def test_network_is_its_twin(r, strikes, rng):
    accelerator = AnyRank(random_any_rank())
    moves, gram = products_of(rng, r)
    memory = memory_of(rng, accelerator, strikes)
    with torch.no_grad():
        found = accelerator.amounts(moves, gram, memory)
    expected = accelerator.amounts(moves, gram, memory)  # with gradients: torch
    torch.testing.assert_close(found, expected.detach(), rtol=1e-6, atol=1e-6)


def test_network_of_another_size_is_its_twin(rng):
    accelerator = AnyRank(random_any_rank(width=5, messages=3, n_layers=3))
    moves, gram = products_of(rng, 4)
    memory = memory_of(rng, accelerator, 0.0)
    with torch.no_grad():
        found = accelerator.amounts(moves, gram, memory)
    expected = accelerator.amounts(moves, gram, memory)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_what_is_zero_does_no_harm():
    accelerator = AnyRank(random_any_rank())
    zero = torch.zeros(2, 3, dtype=torch.float64)
    problem = Problem(Dense(torch.ones(4, 5, dtype=torch.float64)), 3)
    x0 = Factors(*(torch.zeros(k, 3, dtype=torch.float64) for k in (4, 5)))
    memory = accelerator.init(problem, x0)
    gram = torch.zeros(2, 3, 3, dtype=torch.float64)
    found = accelerator.amounts(Pooled(*[zero] * 13), gram, memory)
    assert found.isfinite().all()


@pytest.mark.parametrize("store", STORES.values(), ids=STORES.keys())
@torch.no_grad()
def test_leap_is_as_many_steps(store, rng):
    problem, x0 = draw_problem(rng, store(draw(rng, 30, 20).pow(2)))
    solver = LearnedHER(HALS(), AnyRank(load_any_rank("any-rank")))
    states = list(islice(steps(problem, solver, x0), 13))
    leapt, errors = solver.leap(problem, states[0], 12)
    expected = torch.stack([state.sq_error(problem) for state in states[1:]])
    torch.testing.assert_close(errors, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(leapt.factors, states[-1].factors, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(leapt.memory.t, states[-1].memory.t)
    torch.testing.assert_close(leapt.memory.W, states[-1].memory.W, rtol=1e-3, atol=1e-5)
    assert leapt.plain == states[-1].plain


@torch.no_grad()
def test_leaps_go_on_from_each_other_and_from_steps(rng):
    problem, x0 = draw_problem(rng)
    solver = LearnedHER(HALS(), AnyRank(random_any_rank()))
    whole, errors = solver.leap(problem, solver.init(problem, x0), 40)
    assert (errors.diff() == 0).any()  # there are refusals among them
    state = solver.step(problem, solver.init(problem, x0))
    for n_iter in (1, 4, 5):
        state, some = solver.leap(problem, state, n_iter)
    torch.testing.assert_close(some, errors[6:11], rtol=1e-6, atol=1e-9)
    assert (whole.error <= errors).all()
