"""Extrapolation: how far it goes, and how that follows from rises and falls of the loss."""

import pytest
import torch

from factormer.accelerate.extrapolate import Extrapolation, Momentum
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem


def problem_of(*batch: int) -> Problem:
    return Problem(Dense(torch.ones(*batch, 3, 2, dtype=torch.float64)), 1)


def momentum(*values: float) -> Momentum:
    return Momentum(*(torch.tensor(value, dtype=torch.float64) for value in values))


def point(w: float, h: float) -> Factors:
    return Factors(torch.full((3, 1), w).double(), torch.full((2, 1), h).double())


def verdict(rose: bool) -> torch.Tensor:
    return torch.tensor(rose)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_proposal_lies_beyond_the_step_and_may_be_negative(beta):
    extrapolation, memory = Extrapolation(), momentum(beta, 0.1, 1.0)
    x, same = extrapolation.propose(
        problem_of(), memory, before=point(1.0, 3.0), stepped=point(2.0, 0.5)
    )
    assert same is memory
    torch.testing.assert_close(x, point(2.0 + beta * 1.0, 0.5 - beta * 2.5))


def test_memory_begins_with_the_first_step_and_no_bound():
    memory = Extrapolation(beta=0.4).init(problem_of(2), point(1.0, 1.0))
    assert [value.tolist() for value in memory] == [[0.4, 0.4], [0.4, 0.4], [1.0, 1.0]]


def test_step_and_bound_grow_while_the_loss_falls():
    memory = Extrapolation(gamma=1.2, gamma_bound=1.1).judged(
        momentum(0.5, 0.3, 0.8), verdict(False)
    )
    torch.testing.assert_close(memory, momentum(0.6, 0.5, 0.88))


def test_step_stays_below_the_bound_and_the_bound_below_one():
    extrapolation = Extrapolation(gamma=1.2, gamma_bound=1.1)
    memory = extrapolation.judged(momentum(0.5, 0.3, 0.55), verdict(False))
    torch.testing.assert_close(memory, momentum(0.55, 0.5, 0.605))
    memory = extrapolation.judged(momentum(0.98, 0.3, 0.99), verdict(False))
    torch.testing.assert_close(memory, momentum(0.99, 0.98, 1.0))
    for _ in range(100):
        memory = extrapolation.judged(memory, verdict(False))
    torch.testing.assert_close(memory, momentum(1.0, 1.0, 1.0))


def test_rise_shortens_the_step_and_makes_the_step_before_it_the_bound():
    memory = Extrapolation(eta=2.0).judged(momentum(0.6, 0.5, 0.9), verdict(True))
    torch.testing.assert_close(memory, momentum(0.3, 0.6, 0.5))


def test_members_of_a_stack_are_judged_apart():
    extrapolation, rose = Extrapolation(), torch.tensor([True, False])
    both = Momentum(*(torch.full((2,), v, dtype=torch.float64) for v in (0.6, 0.5, 0.9)))
    together = extrapolation.judged(both, rose)
    for k in range(2):
        alone = extrapolation.judged(momentum(0.6, 0.5, 0.9), rose[k])
        torch.testing.assert_close(Momentum(*(value[k] for value in together)), alone)
