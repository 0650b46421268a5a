"""solve() returns the best point it has seen, says why it ended, and times the solver alone."""

import math

import numpy as np
import pytest

from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.run.result import Status
from factormer.run.solve import solve
from factormer.run.stop import Stationary
from factormer.run.trace import Row
from factormer.solvers.ao_admm import AOADMM
from factormer.solvers.hals import HALS
from factormer.starts import Random
from tests.run.scripted import NEVER, Scripted, ScriptedState

# The point that is returned


def test_best_point_is_returned_when_the_solver_gets_worse():
    result = Scripted([0.5, 0.9, 0.2, 3.0]).run()
    assert result.W.item() == 0.9
    assert result.rmse == pytest.approx(0.1)
    assert result.n_iter == 3
    np.testing.assert_allclose(result.trace.rmse, [0.5, 0.1, 0.8, 2.0])


def test_start_is_returned_when_all_else_is_worse():
    assert Scripted([0.9, 0.5, 0.2]).run().W.item() == 0.9


def test_no_iteration_returns_the_start():
    result = Scripted([0.9]).run()
    assert (result.W.item(), result.n_iter, result.status) == (0.9, 0, Status.MAX_ITER)


def test_an_infinite_error_on_the_way_ends_nothing():
    result = Scripted([0.5, 0.9, 1e200, 1.0]).run()  # whose square is beyond all numbers
    assert (result.W.item(), result.n_iter, result.status) == (1.0, 3, Status.MAX_ITER)


def test_a_start_that_the_solver_moved_is_returned_as_moved():
    class Moved(Scripted):
        def init(self, problem: Problem, x0: Factors) -> ScriptedState:
            return ScriptedState(self.point(1), 1)

    assert Moved([0.5, 1e200, math.nan]).run(max_iter=1).W.item() == 1e200


@pytest.mark.parametrize("end", [math.nan, math.inf])
def test_nonfinite_iterate_ends_the_run_with_the_best_before(end):
    result = Scripted([0.5, 0.9, 0.2, end, 1.0]).run()
    assert result.status is Status.NONFINITE
    assert result.W.item() == 0.9
    assert result.rmse == pytest.approx(0.1)
    assert len(result.trace) == 3


def test_start_that_overflows_is_left_behind():
    result = Scripted([1e200, 0.9]).run()
    assert result.W.item() == 0.9
    assert result.rmse == pytest.approx(0.1)


def test_result_is_outside_any_graph_of_gradients(problem, rng):
    V = problem.V.entries.requires_grad_()
    result = solve(Problem(Dense(V), 3), AOADMM(), Random()(problem, rng), max_iter=2)
    assert not result.W.requires_grad
    assert not result.H.requires_grad


# Stacks


def test_each_member_of_a_stack_keeps_its_own_best():
    result = Scripted([[0.5, 0.5], [0.9, 0.6], [0.7, 1.0]]).run()
    assert result.W.flatten().tolist() == [0.9, 1.0]
    np.testing.assert_allclose(result.rmse, [0.1, 0.0])
    assert result.trace.rmse.shape == (3, 2)


def test_stack_goes_on_without_a_member_that_overflows():
    result = Scripted([[0.5, 0.5], [0.8, math.nan], [0.9, math.nan]]).run()
    assert result.status is Status.MAX_ITER
    assert result.W.flatten().tolist() == [0.9, 0.5]
    np.testing.assert_allclose(result.rmse, [0.1, 0.5])


# Why it ends


def test_iteration_limit_ends_the_run():
    result = Scripted([0.5, 0.6, 0.7, 0.8]).run(max_iter=2)
    assert result.status is Status.MAX_ITER
    assert result.n_iter == 2


def test_solver_converges_to_a_point_without_descent(problem, rng):
    tol, x0 = 1e-3, Random()(problem, rng)
    result = solve(problem, AOADMM(), x0, stop=Stationary(tol), max_iter=5000)
    assert result.status is Status.CONVERGED
    assert 0 < result.n_iter < 5000
    # The best point is not the last one, but on a smooth end of the run it is about as good.
    assert problem.stationarity(result.factors) <= 2 * tol * problem.stationarity(x0)


def test_clock_covers_the_solver_and_its_start_but_no_bookkeeping(clock):
    def callback(row: Row) -> None:
        clock.now += 100

    started, clock.now = clock.now, 3.0
    result = Scripted(3 * [0.5], clock).run(started=started, callback=callback)
    assert result.trace.seconds.tolist() == [3, 5, 7]


def test_interrupt_in_a_callback_keeps_the_best_so_far():
    def callback(row: Row) -> None:
        if row.iteration == 2:
            raise KeyboardInterrupt

    result = Scripted([0.5, 0.9, 0.2, 1.0]).run(callback=callback)
    assert result.status is Status.INTERRUPTED
    assert result.W.item() == 0.9
    assert result.n_iter == 2


def test_interrupt_in_the_solver_keeps_the_best_so_far(monkeypatch):
    solver = Scripted([0.5, 0.9, 0.2, 1.0])
    plain = solver.step

    def step(problem: Problem, state: ScriptedState) -> ScriptedState:
        if state.t == 2:
            raise KeyboardInterrupt
        return plain(problem, state)

    monkeypatch.setattr(solver, "step", step)
    result = solver.run()
    assert (result.status, result.W.item()) == (Status.INTERRUPTED, 0.9)


def test_interrupt_before_there_is_a_point_is_not_swallowed(monkeypatch):
    def init(problem: Problem, x0: Factors) -> ScriptedState:
        raise KeyboardInterrupt

    solver = Scripted([0.5, 0.9])
    monkeypatch.setattr(solver, "init", init)
    with pytest.raises(KeyboardInterrupt):
        solver.run()


def test_default_rule_is_convergence():
    assert Scripted([0.5] + 10 * [1.0]).run(stop=None).status is Status.CONVERGED


# After an earlier run


def test_run_counts_on_from_an_earlier_one(clock):
    script = Scripted(9 * [0.5], clock)
    first = script.run(max_iter=3)
    second = script.run(max_iter=5, earlier=first.trace)
    assert second.trace.iteration.tolist() == list(range(6))
    assert second.trace.seconds.tolist() == [0, 2, 4, 6, 8, 10]
    assert len(first.trace) == 4


@pytest.mark.parametrize("max_iter", [0, 3])
def test_run_without_iterations_left_returns_its_start(max_iter):
    first = Scripted([0.5, 0.6, 0.7, 0.9]).run()
    second = Scripted([0.8, 1.0]).run(max_iter=max_iter, earlier=first.trace)
    assert (second.W.item(), second.status) == (0.8, Status.MAX_ITER)
    assert np.isinf(second.rmse)  # not looked at: `solve_in_stages` does where it matters
    assert len(second.trace) == 4


def test_run_returns_its_own_best_not_that_of_the_earlier_one():
    """The errors of the earlier run may be those of another problem."""
    first = Scripted([0.5, 1.0]).run()
    second = Scripted([0.5, 0.7]).run(max_iter=2, earlier=first.trace)
    assert second.rmse == pytest.approx(0.3)


def test_solver_that_leaps_gives_what_its_steps_give(problem, rng):
    x0 = Random()(problem, rng)
    leaps = solve(problem, HER(), x0, stop=NEVER, max_iter=120)
    plain = Restarted(HALS(), Extrapolation())
    steps = solve(problem, plain, x0, stop=NEVER, max_iter=120)
    assert leaps.trace.iteration.tolist() == steps.trace.iteration.tolist() == list(range(121))
    np.testing.assert_allclose(leaps.trace.rmse[:30], steps.trace.rmse[:30], rtol=1e-6)
    assert leaps.rmse == pytest.approx(steps.rmse, rel=1e-2)


def test_trace_has_a_row_for_the_start_and_each_iteration(problem, rng):
    rows = []
    x0 = Random()(problem, rng)
    result = solve(problem, AOADMM(), x0, stop=NEVER, max_iter=6, callback=rows.append)
    assert result.trace.rows == rows
    assert len(result.trace) == 7
    assert result.trace.iteration.tolist() == list(range(7))
    assert (np.diff(result.trace.seconds) >= 0).all()
    assert result.trace.rmse[0] == pytest.approx(problem.rmse(x0).item())
    assert result.rmse == result.trace.rmse.min()
