"""Networks as starts and accelerators: whom they serve, in which scale and precision."""

import pytest
import torch

from factormer.accelerate.base import Accelerated, Always
from factormer.accelerate.learned import LearnedAccelerator, LearnedInit
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM
from factormer.starts import Given
from tests.networks import random_network, small_config

INIT, ACCEL = random_network(small_config()), random_network(small_config(n_points=2))


@pytest.fixture
def case(rng) -> tuple[Problem, Factors]:
    """A problem of mean 1/2 and a point of it."""
    V, W, H = (torch.rand(s, generator=rng, dtype=torch.float64) for s in ((7, 5), (7, 3), (5, 3)))
    return Problem(Dense(V), 3), Factors(W, H)


def assert_close(x: Factors, y: Factors) -> None:
    torch.testing.assert_close(x.W, y.W)
    torch.testing.assert_close(x.H, y.H)


def test_start_is_the_network_at_the_normalized_problem(case, rng):
    problem, x0 = case
    normalized, mean = problem.normalized()
    expected = INIT(x0.scale(1 / mean), normalized.V).scale(mean)
    assert_close(LearnedInit(INIT, Given(x0), Always())(problem, rng), expected)


def test_network_trained_on_v_as_it_is_sees_v_as_it_is(case, rng):
    problem, x0 = case
    model = random_network(small_config(normalize=False))
    expected = model(x0, problem.V)
    assert_close(LearnedInit(model, Given(x0), Always())(problem, rng), expected)


def test_guarded_start_is_never_above_its_base(case, rng):
    problem, x0 = case
    for seed in range(5):
        model = random_network(small_config(), seed=seed)
        x = LearnedInit(model, Given(x0))(problem, rng)
        assert problem.objective(x) <= problem.objective(x0)


@pytest.mark.parametrize("c", [1e-6, 50.0])
def test_start_and_acceleration_are_free_of_scale(c, case, rng):
    problem, x0 = case
    scaled = Problem(problem.V.scaled(torch.tensor(c).double()), 3)
    x, y = (LearnedInit(INIT, safeguard=Always())(p, rng) for p in (problem, scaled))
    assert_close(y, x.scale(c))
    solver = Accelerated(TraceAOADMM(), LearnedAccelerator(ACCEL), Always())
    x, y = (
        solver.step(p, solver.init(p, start)).factors
        for p, start in ((problem, x0), (scaled, x0.scale(c)))
    )
    assert_close(y, x.scale(c))


def test_no_gradient_means_no_other_result(case):
    """Without gradients attention is taken in blocks."""
    problem, x0 = case
    accelerator = LearnedAccelerator(ACCEL)
    with_gradient, _ = accelerator.propose(problem, None, before=x0, stepped=x0)
    with torch.no_grad():
        without, _ = accelerator.propose(problem, None, before=x0, stepped=x0)
    assert_close(with_gradient, without)


def test_blocks_of_attention_change_nothing(case, rng, monkeypatch):
    problem, x0 = case
    whole = LearnedInit(INIT, Given(x0), Always())(problem, rng)
    monkeypatch.setattr("factormer.accelerate.learned._BLOCK_ENTRIES", 28)  # two rows at a time
    with torch.no_grad():
        assert_close(LearnedInit(INIT, Given(x0), Always())(problem, rng), whole)


def test_network_serves_a_problem_of_another_precision(case, rng):
    problem, x0 = case
    single = random_network(small_config()).float()
    x = LearnedInit(single, Given(x0), Always())(problem, rng)
    assert x.W.dtype == torch.float64
    expected = LearnedInit(INIT, Given(x0), Always())(problem, rng)
    torch.testing.assert_close(x.W, expected.W, rtol=1e-3, atol=1e-4)


def test_network_of_another_rank_is_refused_with_the_remedy(case, rng):
    problem, x0 = case
    other = Problem(problem.V, 4)
    with pytest.raises(ValueError, match="rank is 4, but this network serves only rank 3; choose"):
        LearnedInit(INIT)(other, rng)
    with pytest.raises(ValueError, match="rank is 4, but this network serves only rank 3; choose"):
        Accelerated(AOADMM(), LearnedAccelerator(ACCEL)).init(other, x0)


def test_network_for_the_other_use_is_refused(case, rng):
    problem, x0 = case
    with pytest.raises(ValueError, match=r"an initialization network takes 1 point.* this one 2"):
        LearnedInit(ACCEL)(problem, rng)
    with pytest.raises(ValueError, match=r"an acceleration network takes 2 point.* this one 1"):
        LearnedAccelerator(INIT).init(problem, x0)
