"""Eq. 17 by hand."""

import math

import pytest
import torch

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer_lab.train.objective import discounted, unrolled_loss


def constant_point(value: float, batch: int = 1) -> Factors:
    """Of a 2×3 matrix of zeros: loss ½·6·value², RMSE |value|."""
    return Factors(torch.full((batch, 2, 1), value).double(), torch.ones(batch, 3, 1).double())


def zeros(batch: int = 1) -> Problem:
    return Problem(Dense(torch.zeros(batch, 2, 3, dtype=torch.float64)), 1)


def test_later_iterates_count_more():
    losses = torch.tensor([5.0, 3.0, 2.0])  # x¹, x², x³
    assert discounted(losses, 0.2) == pytest.approx(2 + 0.2 * 3 + 0.04 * 5)
    assert discounted(losses, 1.0) == 10
    assert discounted(losses[:1], 0.2) == 5


def test_squared_objective_is_eq_17_without_the_given_start():
    points = [constant_point(v) for v in (3.0, 2.0, 1.0)]
    value = unrolled_loss(zeros(), iter(points), gamma=0.2, objective="squared")
    assert value.item() == pytest.approx(3 * 1 + 0.2 * 3 * 4 + 0.04 * 3 * 9)


def test_squared_objective_is_the_mean_over_the_batch():
    x = Factors(torch.cat([constant_point(1.0).W, constant_point(3.0).W]), constant_point(1, 2).H)
    value = unrolled_loss(zeros(2), [x], gamma=0.2, objective="squared")
    assert value.item() == pytest.approx((3 * 1 + 3 * 9) / 2)


def test_log_objective_is_the_discounted_mean_of_log_rmse():
    points = [constant_point(v) for v in (4.0, 2.0)]
    value = unrolled_loss(zeros(), points, gamma=0.5, objective="log")
    assert value.item() == pytest.approx((math.log(2) + 0.5 * math.log(4)) / 1.5)


def test_log_objective_leaves_padding_out():
    rows, cols = torch.tensor([[True, False]]), torch.tensor([[True, True, False]])
    problem = Problem(Dense(torch.zeros(1, 2, 3, dtype=torch.float64), rows, cols), 1)
    x = Factors(
        torch.tensor([[[2.0], [0.0]]]).double(), torch.tensor([[[1.0], [1.0], [0.0]]]).double()
    )
    value = unrolled_loss(problem, [x], gamma=0.5, objective="log")
    assert value.item() == pytest.approx(math.log(2))


def test_log_objective_counts_every_matrix_alike():
    """Scaling one matrix of a batch and its point shifts the objective and not its gradient."""
    x = constant_point(2.0, 2)
    scaled = Factors(x.W * torch.tensor([1.0, 100.0])[:, None, None], x.H)
    W, W_scaled = x.W.requires_grad_(), scaled.W.detach().requires_grad_()
    for point in (Factors(W, x.H), Factors(W_scaled, x.H)):
        unrolled_loss(zeros(2), [point], gamma=0.2, objective="log").backward()
    assert W.grad is not None
    assert W_scaled.grad is not None
    torch.testing.assert_close(W_scaled.grad[1] * 100, W.grad[1])
    torch.testing.assert_close(W_scaled.grad[0], W.grad[0])


@pytest.mark.parametrize("objective", ["squared", "log"])
def test_exact_fit_is_finite_with_its_gradient(objective):
    x = constant_point(0.0)
    W = x.W.requires_grad_()
    value = unrolled_loss(zeros(), [Factors(W, x.H)], gamma=0.2, objective=objective)
    value.backward()
    assert value.isfinite()
    assert W.grad is not None
    assert W.grad.isfinite().all()
