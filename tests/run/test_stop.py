"""Each rule stops where it says, and for stacks when all members may stop."""

import math

import pytest
import torch

from factormer import factorize
from factormer.run.result import Status
from factormer.run.stop import (
    Decrease,
    Rounding,
    Stalled,
    Stationary,
    TimeBudget,
    any_of,
    not_before,
)
from factormer.run.trace import Row
from tests.run.scripted import Scripted


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


def test_stationary_start_converges_at_once():
    result = Scripted([1.0, 1.0]).run(stop=Stationary(1e-4))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 0)


def test_exact_fit_up_to_rounding_converges_though_its_gradient_is_noise():
    noise = 2.0**-52
    result = Scripted([1 + noise, 1 - noise, 1 + noise]).run(stop=Stationary(1e-4, every=1))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 0)


@pytest.mark.parametrize("init", ["rotated", "nndsvd", "any-rank-init"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
def test_start_at_an_optimum_converges_at_the_first_looks(init, dtype):
    """At rank 1 the leading singular vectors are the optimum."""
    rng = torch.Generator().manual_seed(0)
    V = torch.rand(50, 1, generator=rng) @ torch.rand(1, 40, generator=rng)
    V = (V * (0.5 + torch.rand(50, 40, generator=rng))).to(dtype)
    result, random = (factorize(V, 1, init=kind, max_iter=100) for kind in (init, "random"))
    assert result.status is random.status is Status.CONVERGED
    assert result.n_iter <= 15
    torch.testing.assert_close(float(result.rmse), float(random.rmse), rtol=1e-6, atol=0)


def test_tolerance_of_zero_runs_all_iterations_even_at_a_solution():
    result = Scripted(8 * [1.0]).run(stop=Stationary(tol=0.0, every=1))
    assert (result.status, result.n_iter) == (Status.MAX_ITER, 7)


def test_convergence_may_have_to_wait_but_not_the_time_limit(clock):
    rule = not_before(5, Stationary(0.1, every=1))
    assert Scripted([0.0] + 9 * [1.0]).run(stop=rule).n_iter == 5
    late = not_before(5, TimeBudget(3.0, since=clock.now))
    assert Scripted(9 * [0.5], clock).run(stop=late).status is Status.TIME_LIMIT


def test_rule_used_twice_measures_from_each_start():
    rule = Stationary(0.1, every=1)
    far = Scripted([100.0, 1.1, 1.05]).run(stop=rule)
    near = Scripted([1.2, 1.1, 1.05]).run(stop=rule)
    assert (far.status, near.status) == (Status.CONVERGED, Status.MAX_ITER)


def test_stack_stops_when_all_of_its_members_may():
    script = [[0.0, 0.0], [1.0, 0.5], [1.0, 0.75], [1.0, 1.0], [1.0, 1.0]]
    result = Scripted(script).run(stop=Stationary(1e-3, every=1))
    assert result.status is Status.CONVERGED
    assert result.n_iter == 3


def test_time_limit_ends_the_run(clock):
    result = Scripted(9 * [0.5], clock).run(stop=TimeBudget(5.0, since=clock.now))
    assert result.status is Status.TIME_LIMIT
    assert result.trace.seconds.tolist() == [0, 2, 4, 6]


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


def test_first_named_rule_gives_the_status():
    def rule(status: Status | None):
        return lambda problem, x, trace: status

    both = [rule(Status.TIME_LIMIT), rule(Status.CONVERGED)]
    assert Scripted([0.5]).run(stop=any_of(*both)).status is Status.TIME_LIMIT
    assert Scripted([0.5]).run(stop=any_of(*both[::-1])).status is Status.CONVERGED
    assert Scripted([0.5]).run(stop=any_of(rule(None), both[1])).status is Status.CONVERGED
    assert Scripted([0.5]).run(stop=any_of(rule(None))).status is Status.MAX_ITER


def errors(*values: float) -> list[float]:
    """A script whose errors are these."""
    return [1 + value for value in values]


def test_error_that_hardly_falls_is_a_stall():
    result = Scripted(errors(4, 2, 1, 0.99, 0.98, 0.97)).run(stop=Stalled(share=0.1, over=2))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 4)
    assert Scripted(errors(16, 8, 4, 2, 1)).run(stop=Stalled(0.1, 2)).status is Status.MAX_ITER


def test_error_that_falls_little_beside_that_of_the_start_is_the_end():
    script = errors(4, 3, 2, 1.5, 1.2, 1.1, 1.05)
    result = Scripted(script).run(stop=Decrease(0.1, every=2))
    assert (result.status, result.n_iter) == (Status.CONVERGED, 6)  # .1 and .15 of 4 after 2 each
    assert Scripted(script).run(stop=Decrease(0.0, every=2)).status is Status.MAX_ITER


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
