"""The loop that is trained on is the package's own, and its loss is zero for the classical one."""

import pytest
import torch
from tests.networks import random_any_rank

from factormer.accelerate.base import Restarted
from factormer.accelerate.cuda_graph import map_tensors, tensors
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data.factors import Factors
from factormer.nn.anyrank import AnyRankConfig, AnyRankNetwork
from factormer_lab.train.anyrank.problems import draw_bucket
from factormer_lab.train.anyrank.rollout import (
    admm,
    classical,
    learned,
    rms,
    trajectory,
    unrolled_loss,
)


def bucket(rng):
    return draw_bucket((12, 10, 3), 2, rng)


@torch.no_grad()
def test_recorded_engine_goes_where_the_plain_one_goes(rng):
    drawn = bucket(rng)
    V, x0 = drawn.problem(slice(None)).V.to(torch.float64), Factors(*(F.double() for F in drawn.x0))
    problem = type(drawn.problem(slice(None)))(V, 3)
    plain, recorded = Restarted(admm(5), Extrapolation()), classical(admm(5))
    a, b = plain.init(problem, x0), recorded.init(problem, x0)
    for _ in range(10):
        a, b = plain.step(problem, a), recorded.step(problem, b)
        torch.testing.assert_close(a.factors, b.factors)
        torch.testing.assert_close(a.error, b.error)


def test_loss_of_a_fresh_network_is_that_of_the_classical_engine(rng):
    drawn = bucket(rng)
    problem = drawn.problem(slice(None))
    errors, refused = trajectory(classical(admm(5)), problem, drawn.x0, 12)
    solver = learned(AnyRankNetwork(AnyRankConfig()), admm(5))
    state = solver.init(problem, drawn.x0)
    outcome, _ = unrolled_loss(solver, problem, state, errors, errors[-1], refusal=0.0)
    assert outcome.gain.abs() < 0.05  # the reference is the smallest error so far
    assert outcome.refused == pytest.approx(refused.mean().item(), abs=0.01)  # rounding may tip one


def test_loss_has_gradients_for_every_weight(rng):
    drawn = bucket(rng)
    problem = drawn.problem(slice(None))
    model = random_any_rank().float().requires_grad_(True)
    errors, _ = trajectory(classical(admm(5)), problem, drawn.x0, 12)
    solver = learned(model, admm(5))
    state = solver.init(problem, drawn.x0)
    outcome, _ = unrolled_loss(solver, problem, state, errors, errors[-1], refusal=1.0)
    gradients = torch.autograd.grad(outcome.loss, list(model.parameters()))
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients)


def test_states_are_mapped_tensor_by_tensor(rng):
    drawn = bucket(rng)
    problem = drawn.problem(slice(None))
    state = learned(random_any_rank(), admm(5)).init(problem, drawn.x0)
    copied = map_tensors(torch.clone, state)
    assert type(copied) is type(state)
    assert len(tensors(copied)) == len(tensors(state)) > 10
    assert all(torch.equal(a, b) for a, b in zip(tensors(copied), tensors(state), strict=True))


def test_rms_is_the_error_of_an_entry(rng):
    drawn = bucket(rng)
    problem = drawn.problem(slice(None))
    torch.testing.assert_close(rms(problem, problem.V.sq_error(drawn.x0)), problem.rmse(drawn.x0))
