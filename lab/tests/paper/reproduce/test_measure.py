import math

import pytest
import torch

from factormer.data import Dense, n_entries
from factormer.problem.problem import Problem
from factormer.starts import NNDSVD
from factormer_lab.paper.reproduce.contestants import (
    ACCEL,
    ACCEL_ALWAYS,
    BASELINE,
    IN_FIGURES,
    INIT,
    INIT_ALWAYS,
    Contestant,
)
from factormer_lab.paper.reproduce.measure import Run, costs, quartiles, rounded, run, run_stack
from factormer_lab.train.synthetic import Stack, validation_set
from lab.tests.paper.reproduce.cases import shrink_sets, stand_in


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Stack:
    shrink_sets(monkeypatch)
    return validation_set("large")


@pytest.mark.parametrize("contestant", IN_FIGURES, ids=lambda c: c.key)
def test_a_stack_gives_what_its_members_give(stack: Stack, contestant: Contestant):
    whole = run_stack(contestant, stack, n_iter=7)
    assert whole.rmse.shape == (8, 3)
    assert whole.rmse.dtype == torch.float64
    members = [
        run(contestant, one.problem, one.x0, n_iter=7).rmse[:, 0]
        for k in range(3)
        for one in [stack.select(torch.tensor([k]), crop=True)]
    ]
    expected = torch.stack(members, dim=1)
    by_size = n_entries(stack.problem.V).argsort()
    torch.testing.assert_close(whole.rmse, expected[:, by_size], rtol=1e-5, atol=1e-8)


def test_iteration_zero_is_nndsvd_or_the_network(stack: Stack):
    plain, init, accel = (run_stack(c, stack, n_iter=1) for c in (BASELINE, INIT, ACCEL))
    assert torch.equal(plain.rmse[0], accel.rmse[0])
    assert (init.rmse[0] < plain.rmse[0]).all()
    assert plain.kept is None
    assert init.kept == 1


def test_kept_is_the_share_of_proposals_let_through():
    problem = Problem(Dense(stand_in()), 10)
    x0 = NNDSVD()(problem, torch.Generator())
    guarded, free = (run(c, problem, x0, n_iter=6) for c in (ACCEL, ACCEL_ALWAYS))
    assert guarded.kept is not None
    assert guarded.kept * 5 == pytest.approx(round(guarded.kept * 5))
    assert free.kept == 1
    assert run(INIT_ALWAYS, problem, x0, n_iter=2, keep=(2,)).points.keys() == {2}


def test_costs_tell_networks_from_iterations():
    seconds = torch.tensor([4.0, *([3.0] * 5), *([1.0] * 10)]).double()
    run = Run(torch.zeros(16), seconds, None, {})
    assert costs(BASELINE, run) == {"network": 0, "iteration": 1, "total": 29}
    assert costs(INIT, run)["network"] == 4
    assert costs(ACCEL, run)["network"] == 10


def test_quartiles_are_over_problems():
    values = torch.arange(5.0).repeat(2, 1) + torch.tensor([[0.0], [10.0]])
    expected = {"q1": [1, 11], "median": [2, 12], "q3": [3, 13]}
    assert quartiles(values) == expected


def test_json_numbers_are_short_and_finite():
    value = {"a": [1 / 3, math.nan, (math.inf, 2)], "b": None, "c": "text", "d": True}
    expected = {"a": [0.333333, None, [None, 2]], "b": None, "c": "text", "d": True}
    assert rounded(value) == expected
