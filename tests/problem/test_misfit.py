"""The misfit of any loss: values and gradients by differentiation, however V is stored."""

import pytest
import scipy.sparse
import torch
from torch import Tensor

from factormer.data import Dense, Observed, Sparse, stored
from factormer.data.factors import Factors
from factormer.penalties import L1, L2, Group, Penalties
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem

BETAS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
each_beta = pytest.mark.parametrize("beta", BETAS)


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng) + 0.05


def case(rng: torch.Generator, beta: float, kind: str) -> tuple[Problem, Factors, Tensor, Tensor]:
    """A problem, a point, and the dense V and weights that it stands for."""
    V, x = draw(rng, 6, 5), Factors(draw(rng, 6, 3), draw(rng, 5, 3))
    weights = torch.ones_like(V)
    if kind == "sparse":
        V = V * (draw(rng, 6, 5) > 0.6) if beta > 0 else V
        matrix = Sparse.of(scipy.sparse.csr_array(V.numpy()))
    elif kind == "dense":
        matrix = Dense(V)
    else:
        weights = draw(rng, 6, 5) * (draw(rng, 6, 5) > 0.5)
        matrix = Observed(Dense(V), weights) if kind == "weighted" else stored(V, weights)
    return Problem(matrix, 3, Beta(beta)), x, V, weights


KINDS = pytest.mark.parametrize("kind", ["dense", "sparse", "weighted", "stored"])


@KINDS
@each_beta
def test_fit_and_gradient(kind, beta, rng):
    problem, (W, H), V, weights = case(rng, beta, kind)
    H.requires_grad_()
    expected = (weights * Beta(beta)(V, W @ H.mT)).sum()
    (gradient,) = torch.autograd.grad(expected, H)
    x = Factors(W, H.detach())
    torch.testing.assert_close(problem.misfit.value(x), expected.detach())
    torch.testing.assert_close(problem.misfit.gradient(x), gradient)
    up, down = problem.misfit.parts(x)
    torch.testing.assert_close(down - up, gradient)


@KINDS
@each_beta
def test_transposed_problem_has_the_same_objective(kind, beta, rng):
    problem, x, _, _ = case(rng, beta, kind)
    torch.testing.assert_close(problem.T.objective(x.swap()), problem.objective(x))
    torch.testing.assert_close(problem.T.stationarity(x.swap()), problem.stationarity(x))


@KINDS
@each_beta
def test_normalized_problem_is_the_problem_in_another_unit(kind, beta, rng):
    problem, x, _, _ = case(rng, beta, kind)
    on = Penalties.of([L1(0.3), L2(0.2), Group(0.1)])
    problem = Problem(problem.V, 3, problem.loss, on, on)
    scaled, mean = problem.normalized()
    square = problem.unit(mean) ** 2
    torch.testing.assert_close(square * scaled.objective(x.scale(1 / mean)), problem.objective(x))
    torch.testing.assert_close(scaled.mean(), torch.ones_like(mean))


def test_products_and_entries_tell_the_same(rng):
    plain, x, V, _ = case(rng, 2.0, "dense")
    problem = Problem(Observed(Dense(V), torch.ones_like(V)), 3)
    assert plain.is_plain
    assert plain.T.is_plain
    assert not problem.is_quadratic
    torch.testing.assert_close(problem.objective(x), plain.objective(x))
    torch.testing.assert_close(problem.sq_error(x), plain.sq_error(x))
    torch.testing.assert_close(problem.rmse(x), plain.rmse(x))
    torch.testing.assert_close(problem.stationarity(x), plain.stationarity(x))


def test_stationarity_is_that_of_the_proximal_gradient(rng):
    """With a penalty that changes nothing, both ways to say it agree on where it is zero."""
    problem, x, _, _ = case(rng, 2.0, "dense")
    grouped = Problem(problem.V, 3, problem.loss, on_h=Penalties.of(Group(0.0)))
    assert float(grouped.stationarity(x)) > 0


def test_unknown_entries_do_not_count(rng):
    problem, x, V, weights = case(rng, 1.0, "weighted")
    other = torch.where(weights > 0, V, 9.0)
    again = Problem(Observed(Dense(other), weights), 3, Beta(1.0))
    torch.testing.assert_close(again.objective(x), problem.objective(x))
    torch.testing.assert_close(again.mean(), V[weights > 0].mean())
    assert float(again.size()) == int((weights > 0).sum())
