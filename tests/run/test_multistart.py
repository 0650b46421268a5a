"""Several starts at once: the best leads, the worse half leaves after each round."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from factormer.accelerate.her import HER
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.data.readings import counted
from factormer.kernels.threads import threads
from factormer.problem.problem import Problem
from factormer.run.multistart import Generations, Halving, between
from factormer.run.solve import solve
from factormer.run.stop import Stationary
from factormer.solvers.hals import HALS
from factormer.solvers.loop import loop
from factormer.starts import Random


@pytest.fixture
def problem(rng) -> Problem:
    V = torch.rand(30, 4, generator=rng) @ torch.rand(4, 20, generator=rng)
    return Problem(Dense((V + 0.3 * torch.rand(30, 20, generator=rng)).double()), 4)


@pytest.fixture
def starts(problem, rng) -> list[Factors]:
    return [Random()(problem, rng) for _ in range(5)]


def errors_alone(problem: Problem, starts: list[Factors], n_iter: int) -> Tensor:
    """(starts, iterations + 1)"""
    runs = []
    for x0 in starts:
        solver = HALS()
        state, errors = solver.init(problem, x0), []
        for _ in range(n_iter):
            state = solver.step(problem, state)
            errors.append(state.sq_error(problem))
        runs.append(torch.stack(errors))
    return torch.stack(runs)


def test_the_best_leads_and_the_worse_half_leaves(problem, starts):
    halving = Halving(HALS(), tuple(starts[1:]), rounds=(2, 4))
    alone = errors_alone(problem, starts, 6)
    state, alive = halving.init(problem, starts[0]), list(range(5))
    with torch.no_grad(), threads():
        for t in range(1, 7):
            state = halving.step(problem, state)
            best = alone[alive, t - 1].min()
            torch.testing.assert_close(state.sq_error(problem), best)
            if t in (2, 4):
                order = alone[alive, t - 1].argsort().tolist()
                alive = [alive[k] for k in order[: -(-len(alive) // 2)]]
            assert len(state.states) == len(alive)
    assert len(alive) == 2


def test_leaps_give_what_steps_give(problem, starts):
    halving = Halving(HER(), tuple(starts[1:]), rounds=(3, 7))
    many, one = (
        solve(problem, halving, starts[0], stop=Stationary(0.0), max_iter=12, stride=stride)
        for stride in (10, 1)
    )
    assert torch.equal(many.factors.W, one.factors.W)
    assert many.trace.rmse.tolist() == one.trace.rmse.tolist()


def test_error_does_not_rise_and_is_never_above_the_first_start_alone(problem, starts):
    halving = Halving(HER(), tuple(starts[1:]))
    together = solve(problem, halving, starts[0], stop=Stationary(0.0), max_iter=9)
    alone = solve(problem, HER(), starts[0], stop=Stationary(0.0), max_iter=9)
    assert (together.trace.rmse[1:] <= alone.trace.rmse[1:] + 1e-12).all()


def test_threads_change_nothing(problem, starts):
    halving = Halving(HER(), tuple(starts[1:]))
    before, results = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            with counted():
                results.append(solve(problem, halving, starts[0], max_iter=40))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(results[0].factors, results[1].factors, rtol=0, atol=0)
    one, two = (np.diff(result.trace.passes).tolist() for result in results)
    assert one == two  # the first row has what V remembers from then on, such as its norm
    assert sum(one) > 0


def test_point_taken_over_replaces_the_best(problem, starts):
    halving = Halving(HALS(), tuple(starts[1:]))
    state = halving.init(problem, starts[0])
    adopted = halving.adopt(problem, state, starts[3])
    assert torch.equal(adopted.factors.W, starts[3].W)
    assert len(adopted.states) == 5


def generations(starts: list[Factors], **options: Any) -> Generations:
    return Generations(HER(), tuple(starts[1:]), **{"n_children": 3, "span": 12} | options)


def test_a_generation_ends_with_the_two_best_and_what_is_made_of_them(problem, starts):
    solver = generations(starts, gain=-1.0)  # nobody rests
    with torch.no_grad(), threads():
        states = {look.t: look.state for look in loop(problem, solver, starts[0], limit=30)}
        alone = [
            [float(look.errors[-1]) for look in loop(problem, HER(), x0, limit=12)] for x0 in starts
        ]
    for t in range(1, 12):
        best = min(errors[t] for errors in alone)
        assert float(states[t].sq_error(problem)) == pytest.approx(best)
    kept = [float(state.sq_error(problem)) for state in states[12].states]
    assert kept[:2] == pytest.approx(sorted(errors[12] for errors in alone)[:2])
    assert [len(states[t].states) for t in (11, 12, 23, 24, 30)] == [5, 5, 5, 1, 1]


def test_runs_that_end_alike_have_no_children(problem, starts):
    solver = Generations(HER(), (starts[0],) * 3, n_children=2, span=4)
    with torch.no_grad(), threads():
        *_, look = loop(problem, solver, starts[0], limit=4)
    assert len(look.state.states) == 1


def test_a_run_that_gains_little_rests_and_the_best_goes_on_at_the_end(problem, starts):
    solver = generations(starts, gain=1.0, span=8, every=2)  # all rest at the second check
    rmse = solve(problem, solver, starts[0], stop=Stationary(0.0), max_iter=30).trace.rmse
    assert (rmse[4:9] == rmse[4]).all()
    assert (np.diff(rmse[[0, 2, 4]]) < 0).all()
    assert rmse[30] < rmse[16]


def test_all_rest_once_a_fit_is_exact(problem, starts):
    x = starts[2]
    V = Problem(Dense(x.W @ x.H.mT), problem.rank)
    solver = generations([starts[0], x, starts[1]], span=8, every=2)
    with torch.no_grad(), threads():
        states = {look.t: look.state for look in loop(V, solver, starts[0], limit=9)}
    assert all(states[2].resting)
    assert torch.equal(states[2].states[0].factors.W, states[7].states[0].factors.W)
    assert len(states[8].states) == 1


def test_generations_are_the_same_in_leaps_and_steps_and_never_get_worse(problem, starts):
    solver = generations(starts, n_children=2, span=11)
    many, one = (
        solve(problem, solver, starts[0], stop=Stationary(0.0), max_iter=33, stride=stride)
        for stride in (10, 1)
    )
    assert torch.equal(many.factors.W, one.factors.W)
    assert many.trace.rmse.tolist() == one.trace.rmse.tolist()
    assert (np.diff(many.trace.rmse[1:]) <= 1e-12).all()


def test_threads_change_nothing_in_generations(problem, starts):
    before, results = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            with counted():
                results.append(solve(problem, generations(starts), starts[0], max_iter=40))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(results[0].factors, results[1].factors, rtol=0, atol=0)
    one, two = (np.diff(result.trace.passes).tolist() for result in results)
    assert one == two  # the first row has what V remembers from then on, such as its norm
    assert sum(one) > 0


def test_point_taken_over_wakes_the_best(problem, starts):
    solver = generations(starts)
    state = solver.init(problem, starts[0])._replace(resting=(True,) * 5)
    adopted = solver.adopt(problem, state, starts[3])
    assert torch.equal(adopted.factors.W, starts[3].W)
    assert adopted.resting == (False, True, True, True, True)


def test_between_a_point_and_itself_is_that_point(starts):
    x = starts[0]
    y = between(x, Factors(*(F.flip(-1) for F in x)))
    torch.testing.assert_close(y.W @ y.H.mT, x.W @ x.H.mT)


def test_between_two_points_is_what_both_have(starts):
    (W, H), (A, B) = starts[0], starts[1]
    x = Factors(torch.cat([W[:, :3], 1e-3 * A[:, :1]], 1), torch.cat([H[:, :3], B[:, :1]], 1))
    y = Factors(torch.cat([W[:, :3], 1e-3 * A[:, 1:2]], 1), torch.cat([H[:, :3], B[:, 1:2]], 1))
    z = between(x, y)
    mean = (x.W @ x.H.mT + y.W @ y.H.mT) / 2
    assert z.W.shape == x.W.shape
    assert float((z.W @ z.H.mT - mean).norm() / mean.norm()) < 1e-3
