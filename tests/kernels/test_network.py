"""The compiled any-rank network against its twin in torch."""

import pytest
import torch

from factormer.accelerate.anyrank import AnyRank, Memory
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.anyrank import Pooled
from factormer.problem.problem import Problem
from tests.kernels.test_loops import draw_problem
from tests.networks import random_any_rank


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
