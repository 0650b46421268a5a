"""solve() returns the best point it has seen, says why it ended, and times the solver alone."""

import math
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.run.solve import (
    Result,
    Rounding,
    Row,
    Stage,
    Stalled,
    Stationary,
    Status,
    TimeBudget,
    Trace,
    any_of,
    solve,
    solve_in_stages,
)
from factormer.solvers.ao_admm import AOADMM
from factormer.solvers.hals import HALS
from factormer.starts import Random

NEVER = Stationary(tol=0.0)


class ScriptedState(NamedTuple):
    """A point and how many iterations led to it."""

    factors: Factors
    t: int

    def sq_error(self, problem: Problem) -> Tensor:
        return problem.V.sq_error(self.factors)


class Scripted:
    """Goes through given values of W, (T + 1, *b), with H = 1; a step takes two seconds."""

    def __init__(self, values: Any, clock: "Clock | None" = None):
        self.values = torch.tensor(values, dtype=torch.float64)
        self.clock = clock

    def point(self, t: int) -> Factors:
        W = self.values[t][..., None, None]
        return Factors(W, torch.ones_like(W))

    def init(self, problem: Problem, x0: Factors) -> ScriptedState:
        return ScriptedState(x0, 0)

    def step(self, problem: Problem, state: ScriptedState) -> ScriptedState:
        if self.clock is not None:
            self.clock.now += 2.0
        return ScriptedState(self.point(state.t + 1), state.t + 1)

    def adopt(self, problem: Problem, state: ScriptedState, x: Factors) -> ScriptedState:
        return ScriptedState(x, state.t)

    def run(self, **options: Any) -> Result:
        """Solve V = 1, so that the error is |W − 1|, along the whole script."""
        V = Dense(torch.ones(*self.values.shape[1:], 1, 1, dtype=torch.float64))
        options = {"stop": NEVER, "max_iter": len(self.values) - 1} | options
        return solve(Problem(V, 1), self, self.point(0), **options)


def point(w: float) -> Factors:
    return Factors(*(torch.full((1, 1), value, dtype=torch.float64) for value in (w, 1.0)))


class Clock:
    """A `time.perf_counter` that stands still unless told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


@pytest.fixture
def problem(rng) -> Problem:
    V = torch.rand(8, 3, generator=rng) @ torch.rand(3, 7, generator=rng)
    return Problem(Dense(V.double()), 3)


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


def test_stack_stops_when_all_of_its_members_may():
    script = [[0.0, 0.0], [1.0, 0.5], [1.0, 0.75], [1.0, 1.0], [1.0, 1.0]]
    result = Scripted(script).run(stop=Stationary(1e-3, every=1))
    assert result.status is Status.CONVERGED
    assert result.n_iter == 3


# Why it ends


def test_iteration_limit_ends_the_run():
    result = Scripted([0.5, 0.6, 0.7, 0.8]).run(max_iter=2)
    assert result.status is Status.MAX_ITER
    assert result.n_iter == 2


def test_small_projected_gradient_beside_that_of_the_start_is_convergence():
    values = [1 - 0.5**t for t in range(8)]
    sizes = [abs(w - 1) * math.sqrt(1 + w**2) for w in values]  # by W: w − 1; by H: (w − 1) w
    expected = next(t for t, size in enumerate(sizes) if size <= 0.1 * sizes[0])
    result = Scripted(values).run(stop=Stationary(0.1, every=1))
    assert result.status is Status.CONVERGED
    assert result.n_iter == expected


def test_convergence_is_looked_for_every_few_iterations():
    result = Scripted([0.5] + 9 * [1.0]).run(stop=Stationary(0.1, every=4))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 4)


def test_solver_converges_to_a_point_without_descent(problem, rng):
    tol, x0 = 1e-3, Random()(problem, rng)
    result = solve(problem, AOADMM(), x0, stop=Stationary(tol), max_iter=5000)
    assert result.status is Status.CONVERGED
    assert 0 < result.n_iter < 5000
    # The best point is not the last one, but on a smooth end of the run it is about as good.
    assert problem.stationarity(result.factors) <= 2 * tol * problem.stationarity(x0)


def test_stationary_start_converges_at_once():
    result = Scripted([1.0, 1.0]).run(stop=Stationary(1e-4))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 0)


def test_exact_fit_up_to_rounding_converges_though_its_gradient_is_noise():
    noise = 2.0**-52
    result = Scripted([1 + noise, 1 - noise, 1 + noise]).run(stop=Stationary(1e-4, every=1))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 0)


def test_tolerance_of_zero_runs_all_iterations_even_at_a_solution():
    result = Scripted(8 * [1.0]).run(stop=Stationary(tol=0.0, every=1))
    assert (result.status, result.n_iter) == (Status.MAX_ITER, 7)


def test_rule_used_twice_measures_from_each_start():
    rule = Stationary(0.1, every=1)
    far = Scripted([100.0, 1.1, 1.05]).run(stop=rule)
    near = Scripted([1.2, 1.1, 1.05]).run(stop=rule)
    assert (far.status, near.status) == (Status.CONVERGED, Status.MAX_ITER)


def test_time_limit_ends_the_run(clock):
    result = Scripted(9 * [0.5], clock).run(stop=TimeBudget(5.0, since=clock.now))
    assert result.status is Status.TIME_LIMIT
    assert result.trace.seconds.tolist() == [0, 2, 4, 6]


def test_clock_covers_the_solver_and_its_start_but_no_bookkeeping(clock):
    def callback(row: Row) -> None:
        clock.now += 100

    started, clock.now = clock.now, 3.0
    result = Scripted(3 * [0.5], clock).run(started=started, callback=callback)
    assert result.trace.seconds.tolist() == [3, 5, 7]


def test_time_limit_counts_what_the_start_took(clock):
    started, clock.now = clock.now, 3.0
    result = Scripted(3 * [0.5], clock).run(started=started, stop=TimeBudget(3.0, since=started))
    assert (result.status, result.n_iter) == (Status.TIME_LIMIT, 0)


def test_time_limit_covers_bookkeeping_too(clock):
    def callback(row: Row) -> None:
        clock.now += 100

    stop = TimeBudget(5.0, since=clock.now)
    result = Scripted(9 * [0.5], clock).run(stop=stop, callback=callback)
    assert (result.status, result.n_iter) == (Status.TIME_LIMIT, 0)


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


def test_first_named_rule_gives_the_status():
    def rule(status: Status | None):
        return lambda problem, x, trace: status

    both = [rule(Status.TIME_LIMIT), rule(Status.CONVERGED)]
    assert Scripted([0.5]).run(stop=any_of(*both)).status is Status.TIME_LIMIT
    assert Scripted([0.5]).run(stop=any_of(*both[::-1])).status is Status.CONVERGED
    assert Scripted([0.5]).run(stop=any_of(rule(None), both[1])).status is Status.CONVERGED
    assert Scripted([0.5]).run(stop=any_of(rule(None))).status is Status.MAX_ITER


def test_default_rule_is_convergence():
    assert Scripted([0.5] + 10 * [1.0]).run(stop=None).status is Status.CONVERGED


def errors(*values: float) -> list[float]:
    """A script whose errors are these."""
    return [1 + value for value in values]


def test_error_that_hardly_falls_is_a_stall():
    result = Scripted(errors(4, 2, 1, 0.99, 0.98, 0.97)).run(stop=Stalled(share=0.1, over=2))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 4)
    assert Scripted(errors(16, 8, 4, 2, 1)).run(stop=Stalled(0.1, 2)).status is Status.MAX_ITER


def test_error_that_rises_is_a_stall():
    result = Scripted(errors(4, 2, 3, 3)).run(stop=Stalled(share=0.1, over=1))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 2)


def test_stack_stalls_when_all_of_its_members_do():
    script = [errors(4, 4), errors(4, 2), errors(4, 1), errors(4, 1), errors(4, 1)]
    result = Scripted(script).run(stop=Stalled(share=0.1, over=1))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 3)


def test_error_within_rounding_of_single_precision_ends_the_run():
    small = Scripted(errors(4, 0.5, 0.05, 0.01)).run(stop=Rounding(share=0.0, small=0.01))
    assert (small.status, small.n_iter) == (Status.CONVERGED, 2)
    slow = Scripted(errors(4, 1, 0.99999, 0.9)).run(stop=Rounding(share=1e-3))
    assert (slow.status, slow.n_iter) == (Status.CONVERGED, 2)


@pytest.mark.parametrize("status", Status)
def test_status_reads_as_a_sentence(status):
    assert str(status) == f"{status.name}: {status.value}"


# One run after another


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


def stages_of(*limits: int, **options: Any) -> list[Stage]:
    one = Problem(Dense(torch.ones(1, 1, dtype=torch.float64)), 1)
    return [Stage(one, AOADMM(), limit, NEVER, **options) for limit in limits]


def test_stages_go_on_from_each_other(problem, rng):
    solver, x0 = AOADMM(), Random()(problem, rng)
    whole = solve(problem, solver, x0, stop=NEVER, max_iter=9)
    parts = solve_in_stages([Stage(problem, solver, k, NEVER) for k in (2, 5, 9)], x0)
    assert parts.n_iter == 9
    np.testing.assert_allclose(parts.trace.rmse, whole.trace.rmse)
    torch.testing.assert_close(parts.factors, whole.factors)


def test_stage_that_converges_gives_way_to_the_next():
    def at_once(problem: Problem, x: Factors, trace: Trace) -> Status:
        return Status.CONVERGED

    stages = stages_of(9, 4)
    result = solve_in_stages([stages[0]._replace(stop=at_once), stages[1]], point(0.5))
    assert (result.status, result.n_iter) == (Status.MAX_ITER, 4)


@pytest.mark.parametrize("status", [Status.TIME_LIMIT, Status.INTERRUPTED], ids=str)
def test_error_is_that_on_the_last_problem_even_where_it_is_not_reached(status):
    def rule(problem: Problem, x: Factors, trace: Trace) -> Status:
        if status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return status

    coarse = Problem(Dense(torch.full((1, 1), 3.0).double()), 1)
    last = stages_of(9)[0]._replace(stop=NEVER)
    stages = [Stage(coarse, AOADMM(), 9, rule, exact=False), last]
    result = solve_in_stages(stages, point(0.5))
    assert (result.status, result.n_iter) == (status, 0)
    assert result.rmse == pytest.approx(0.5)


def test_result_has_the_precision_of_the_last_problem(problem, rng):
    single = Problem(problem.V.to(torch.float32), 3)
    for last in (problem, single):
        for limits in ((2, 4), (4, 4)):
            pairs = zip((single, last), limits, strict=True)
            stages = [Stage(p, HER(), k, NEVER) for p, k in pairs]
            result = solve_in_stages(stages, Random()(problem, rng))
            assert result.factors.W.dtype == last.V.dtype
            assert result.n_iter == 4
            assert result.rmse == pytest.approx(last.rmse(result.factors).item(), rel=1e-3)


def test_solver_that_leaps_gives_what_its_steps_give(problem, rng):
    x0 = Random()(problem, rng)
    leaps = solve(problem, HER(), x0, stop=NEVER, max_iter=120)
    plain = Restarted(HALS(), Extrapolation())
    steps = solve(problem, plain, x0, stop=NEVER, max_iter=120)
    assert leaps.trace.iteration.tolist() == steps.trace.iteration.tolist() == list(range(121))
    np.testing.assert_allclose(leaps.trace.rmse[:30], steps.trace.rmse[:30], rtol=1e-6)
    assert leaps.rmse == pytest.approx(steps.rmse, rel=1e-2)


# The history


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


def test_scaled_trace_is_that_of_the_scaled_matrix():
    trace = Scripted([0.5, 0.9]).run().trace
    scaled = trace.scaled(torch.tensor(3.0, dtype=torch.float64))
    np.testing.assert_allclose(scaled.rmse, 3 * trace.rmse)
    assert scaled.iteration.tolist() == trace.iteration.tolist()
    assert scaled.seconds.tolist() == trace.seconds.tolist()


def test_each_member_of_a_stack_is_scaled_by_its_own_number():
    trace = Scripted([[0.5, 0.5], [0.9, 0.6]]).run().trace
    scaled = trace.scaled(torch.tensor([3.0, 5.0], dtype=torch.float64))
    np.testing.assert_allclose(scaled.rmse, trace.rmse * [3.0, 5.0])


@pytest.mark.parametrize("x", ["iteration", "seconds"])
def test_trace_draws_its_error_on_given_axes(x):
    trace, ax = Scripted([0.5, 0.9, 0.2]).run().trace, Figure().subplots()
    assert trace.plot(ax, x=x, label="script") is ax
    (line,) = ax.lines
    np.testing.assert_allclose(np.asarray(line.get_ydata()), trace.rmse)
    np.testing.assert_allclose(np.asarray(line.get_xdata()), getattr(trace, x))
    assert (ax.get_xlabel(), ax.get_ylabel(), line.get_label()) == (x, "RMSE", "script")
    assert ax.get_yscale() == "log"


def test_trace_of_a_stack_draws_a_line_a_member():
    trace = Scripted([[0.5, 0.5], [0.9, 0.6]]).run().trace
    assert len(trace.plot(Figure().subplots()).lines) == 2


def test_trace_draws_on_the_current_axes_by_default():
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    try:
        ax = Trace([Row(0, 0.0, torch.tensor(1.0))]).plot()
        assert ax is plt.gca()
    finally:
        plt.close("all")


def test_unknown_column_to_draw_against_is_refused():
    with pytest.raises(ValueError, match="x is 'time'; choose 'iteration' or 'seconds'"):
        Trace().plot(x="time")
