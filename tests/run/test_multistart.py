"""Several starts at once: the best leads, the worse half leaves after each round."""

import pytest
import torch
from torch import Tensor

from factormer.accelerate.her import HER
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.kernels.threads import threads
from factormer.problem.problem import Problem
from factormer.run.multistart import Tournament
from factormer.run.solve import solve
from factormer.run.stop import Stationary
from factormer.solvers.hals import HALS
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
    tournament = Tournament(HALS(), tuple(starts[1:]), rounds=(2, 4))
    alone = errors_alone(problem, starts, 6)
    state, alive = tournament.init(problem, starts[0]), list(range(5))
    with torch.no_grad(), threads():
        for t in range(1, 7):
            state = tournament.step(problem, state)
            best = alone[alive, t - 1].min()
            torch.testing.assert_close(state.sq_error(problem), best)
            if t in (2, 4):
                order = alone[alive, t - 1].argsort().tolist()
                alive = [alive[k] for k in order[: -(-len(alive) // 2)]]
            assert len(state.states) == len(alive)
    assert len(alive) == 2


def test_leaps_give_what_steps_give(problem, starts):
    tournament = Tournament(HER(), tuple(starts[1:]), rounds=(3, 7))
    many, one = (
        solve(problem, tournament, starts[0], stop=Stationary(0.0), max_iter=12, stride=stride)
        for stride in (10, 1)
    )
    assert torch.equal(many.factors.W, one.factors.W)
    assert many.trace.rmse.tolist() == one.trace.rmse.tolist()


def test_error_does_not_rise_and_is_never_above_the_first_start_alone(problem, starts):
    tournament = Tournament(HER(), tuple(starts[1:]))
    together = solve(problem, tournament, starts[0], stop=Stationary(0.0), max_iter=9)
    alone = solve(problem, HER(), starts[0], stop=Stationary(0.0), max_iter=9)
    assert (together.trace.rmse[1:] <= alone.trace.rmse[1:] + 1e-12).all()


def test_threads_change_nothing(problem, starts):
    tournament = Tournament(HER(), tuple(starts[1:]))
    before, results = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(solve(problem, tournament, starts[0], max_iter=40))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(results[0].factors, results[1].factors, rtol=0, atol=0)


def test_point_taken_over_replaces_the_best(problem, starts):
    tournament = Tournament(HALS(), tuple(starts[1:]))
    state = tournament.init(problem, starts[0])
    adopted = tournament.adopt(problem, state, starts[3])
    assert torch.equal(adopted.factors.W, starts[3].W)
    assert len(adopted.states) == 5
