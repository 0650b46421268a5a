"""Waking: plain extrapolation until the run shows itself to be slow, and then the network."""

import math
from itertools import islice, pairwise
from typing import Any

import pytest
import torch

from factormer.accelerate.anyrank import AnyRank, Memory
from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.waking import Sleeping, Waking, slowness
from factormer.data import Dense
from factormer.problem.problem import Problem
from factormer.solvers.base import Solver
from factormer.solvers.hals import HALS
from factormer.solvers.loop import loop
from factormer.starts import Random
from tests.networks import random_any_rank

LOOK = 4


@pytest.fixture
def slow() -> Problem:
    rng = torch.Generator().manual_seed(3)
    W, H = (torch.rand(k, 6, generator=rng).double() for k in (40, 30))
    return Problem(Dense(W @ H.mT), 6)


def states(problem: Problem, solver: Solver[Any], n: int) -> list[Any]:
    x0 = Random()(problem, torch.Generator().manual_seed(0))
    with torch.no_grad():
        return [look.state for look in islice(loop(problem, solver, x0), n + 1)]


def waking(share: float) -> Waking:
    return Waking(HALS(), AnyRank(random_any_rank()), LOOK, share)


def test_a_run_that_is_not_slow_is_plain_extrapolation_to_the_last_bit(slow):
    plain = states(slow, Restarted(HALS(), Extrapolation()), 12)
    found = states(slow, waking(math.inf), 12)
    for one, other in zip(plain, found, strict=True):
        assert torch.equal(one.factors.W, other.factors.W)
        assert torch.equal(one.factors.H, other.factors.H)
    assert isinstance(found[-1].memory, Sleeping)


def test_the_network_is_asked_after_the_look_and_not_before(slow):
    plain = states(slow, Restarted(HALS(), Extrapolation()), 12)
    found = states(slow, waking(-math.inf), 12)
    asked = [isinstance(state.memory, Memory) for state in found]
    assert asked == [False] * LOOK + [True] * (13 - LOOK)
    same = [torch.equal(a.factors.W, b.factors.W) for a, b in zip(plain, found, strict=True)]
    assert all(same[: LOOK + 2])  # the network has no move to look at before
    assert not same[-1]
    errors = [float(slow.sq_error(state.factors)) for state in found]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(errors))


def test_momentum_is_carried_over(slow):
    state = states(slow, waking(-math.inf), LOOK)[-1]
    plain = states(slow, Restarted(HALS(), Extrapolation()), LOOK)[-1]
    assert torch.equal(state.memory.momentum.beta, plain.memory.beta)
    assert torch.equal(state.memory.proposed.W, state.inner.factors.W)


def test_slowness_is_the_share_still_to_be_gained_of_a_power_law():
    for power in (0.5, 1.0, 2.0):
        before, now = torch.tensor([1 + k**-power for k in (100.0, 102.0)]).double()
        expected = power * 102**-power / (1 + 102**-power)
        assert float(slowness(before, now, 102)) == pytest.approx(expected, rel=0.05)


def test_an_exact_fit_is_not_slow():
    zero, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    assert float(slowness(one, zero, 8)) == 0
    assert float(slowness(zero, zero, 8)) == 0
