"""The objective and its relatives: values by hand, then the laws that hold of them."""

import pytest
import torch
from hypothesis import given
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from tests.laws.cases import law, padded, problems, stacked


def problem_of(V: list[list[float]], rank: int = 1) -> Problem:
    return Problem(Dense(torch.tensor(V, dtype=torch.float64)), rank)


def point_of(W: list[list[float]], H: list[list[float]]) -> Factors:
    return Factors(torch.tensor(W, dtype=torch.float64), torch.tensor(H, dtype=torch.float64))


def gradients(problem: Problem, x: Factors) -> tuple[Tensor, ...]:
    x = Factors(*(F.clone().requires_grad_() for F in x))
    return torch.autograd.grad(problem.objective(x), tuple(x))


# By hand


def test_loss_is_half_the_squared_error():
    problem = problem_of([[1, 2], [3, 4]])
    x = point_of([[1], [1]], [[1], [2]])  # residuals 0, 0, −2, −2
    assert problem.objective(x) == 4.0


def test_rmse_is_the_root_of_the_mean_squared_error():
    problem = problem_of([[1, 2], [3, 4]])
    x = point_of([[1], [1]], [[1], [2]])
    torch.testing.assert_close(problem.rmse(x), torch.tensor(2.0).double().sqrt())


def test_stationarity_counts_only_feasible_descent():
    problem = problem_of([[1.0]])
    # The gradients at (w, h) are h(wh − 1) by w and w(wh − 1) by h.
    torch.testing.assert_close(
        problem.stationarity(point_of([[2.0]], [[1.0]])), torch.tensor(5.0).double().sqrt()
    )
    # At h = 0 the gradient by h is −w: H may grow; the one by w is 0.
    assert problem.stationarity(point_of([[2.0]], [[0.0]])) == 2.0
    # Of a zero matrix, h = 0 is a minimum whatever w is.
    assert problem_of([[0.0]]).stationarity(point_of([[2.0]], [[0.0]])) == 0.0


def test_stationarity_ignores_the_gradient_that_pushes_out_of_the_orthant():
    problem = problem_of([[1]], rank=2)
    x = point_of([[1, 1]], [[2, 0]])  # residual 1; gradients (2, 0) by W, and (1, 1) by H
    torch.testing.assert_close(problem.stationarity(x), torch.tensor(5.0).double().sqrt())


def test_mean_is_over_real_entries():
    V = torch.tensor([[[1.0, 3.0], [0.0, 0.0]]])
    rows = torch.tensor([[True, False]])
    assert Problem(Dense(V, rows), 1).mean().tolist() == [2.0]


def test_rank_below_one_is_refused():
    with pytest.raises(ValueError, match="rank is 0; it must be a whole number of at least 1"):
        problem_of([[1.0]], rank=0)


# Laws


@law
@given(case=problems())
def test_loss_is_symmetric_under_transposition(case):
    problem, x = case
    torch.testing.assert_close(problem.T.objective(x.swap()), problem.objective(x))
    torch.testing.assert_close(problem.T.rmse(x.swap()), problem.rmse(x))
    torch.testing.assert_close(problem.T.stationarity(x.swap()), problem.stationarity(x))


@law
@given(case=problems())
def test_rmse_and_loss_are_one_quantity(case):
    problem, x = case
    m, n = problem.V.shape
    torch.testing.assert_close(problem.rmse(x).square() * m * n / 2, problem.objective(x))


@law
@given(case=problems())
def test_stationarity_is_zero_at_an_exact_fit(case):
    problem, x = case
    fit = Problem(Dense(x.W @ x.H.mT), problem.rank)
    assert fit.objective(x) < 1e-20
    assert fit.stationarity(x) < 1e-10


@law
@given(case=problems(zeros=False))
def test_stationarity_is_the_gradient_at_a_positive_point(case):
    problem, x = case
    by_W, by_H = gradients(problem, x)
    expected = (by_W.square().sum() + by_H.square().sum()).sqrt()
    torch.testing.assert_close(problem.stationarity(x), expected)
    assert problem.stationarity(x) > 0


@law
@given(case=problems())
def test_stationarity_is_the_least_gradient_of_the_feasible_directions(case):
    problem, x = case
    halves = zip(gradients(problem, x), x, strict=True)
    projected = [torch.where(F > 0, g, g.clamp(max=0)) for g, F in halves]
    expected = torch.stack([p.square().sum() for p in projected]).sum().sqrt()
    torch.testing.assert_close(problem.stationarity(x), expected)


@law
@given(case=problems())
def test_normalized_matrix_has_mean_one_and_the_same_solutions(case):
    problem, x = case
    normalized, mean = problem.normalized()
    if problem.mean() == 0:
        assert mean == 1
    else:
        torch.testing.assert_close(normalized.mean(), torch.ones_like(mean))
    torch.testing.assert_close(
        normalized.objective(x.scale(1 / mean)), problem.objective(x) / mean**2
    )
    assert normalized.rank == problem.rank


@law
@given(case=problems())
def test_padding_changes_nothing(case):
    (problem, x), more = case, padded(case, 11, 9)
    for quantity in ("objective", "rmse", "stationarity"):
        expected = getattr(problem, quantity)(x)
        torch.testing.assert_close(getattr(more.problem, quantity)(more.x0), expected)
    torch.testing.assert_close(more.problem.mean(), problem.mean())


@law
@given(a=problems(), b=problems())
def test_members_of_a_stack_are_measured_apart(a, b):
    both = stacked([a, b])
    for quantity in ("objective", "rmse", "stationarity"):
        expected = torch.stack([getattr(c.problem, quantity)(c.x0) for c in (a, b)])
        torch.testing.assert_close(getattr(both.problem, quantity)(both.x0), expected)
