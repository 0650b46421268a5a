"""Penalties and fixed columns, for every solver of the squared error."""

from dataclasses import replace

import numpy as np
import pytest
import sklearn.decomposition
import torch

from factormer import NMF, custom_start, factorize
from factormer.factors import Factors
from factormer.matrix import Dense
from factormer.options import Penalties
from factormer.presets import SOLVERS
from factormer.problem import Problem
from factormer.terms import Asked, Terms

draw = np.random.default_rng(0)
X = 7 * draw.random((20, 4)) @ draw.random((4, 15)) + draw.random((20, 15))
START = dict(zip("WH", custom_start(X, 4, init="random"), strict=True))
PENALTIES = [(0.05, 0.05, 0.0), (0.05, 0.05, 1.0), (0.02, 0.1, 0.5)]
OPTIMA: dict[tuple[float, float, float], float] = {}


def objective(W: np.ndarray, H: np.ndarray, alpha_W: float, alpha_H: float, ratio: float) -> float:
    """scikit-learn's objective, letter by letter."""
    m, n = X.shape

    def size(F: np.ndarray) -> float:
        return ratio * np.abs(F).sum() + (1 - ratio) / 2 * (F**2).sum()

    return 0.5 * ((X - W @ H) ** 2).sum() + alpha_W * n * size(W) + alpha_H * m * size(H)


def optimum(penalty: tuple[float, float, float]) -> float:
    """What scikit-learn converges to from the same start."""
    if penalty not in OPTIMA:
        model = sklearn.decomposition.NMF(4, init="custom", tol=1e-10, max_iter=5000)  # pyright: ignore[reportArgumentType]
        model.set_params(alpha_W=penalty[0], alpha_H=penalty[1], l1_ratio=penalty[2])
        W = model.fit_transform(X, W=START["W"].copy(), H=START["H"].copy())
        OPTIMA[penalty] = objective(W, model.components_, *penalty)
    return OPTIMA[penalty]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("solver", ["auto", "cd", "her-admm", "ao-admm-trace"])
def test_solvers_reach_the_objective_of_scikit_learn(solver, penalty):
    alpha_W, alpha_H, ratio = penalty
    model = NMF(4, init="custom", solver=solver, max_iter=500, tol=1e-6)
    model.set_params(alpha_W=alpha_W, alpha_H=alpha_H, l1_ratio=ratio)
    W = model.fit_transform(X, **START)
    found = objective(W, model.components_, *penalty)
    assert found <= optimum(penalty) * (1 + 1e-3)
    assert model.trace_.rmse[-1] ** 2 * X.size / 2 == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in ("ao-admm",)])
def test_penalised_loss_does_not_rise(solver, penalty):
    asked = Penalties(*penalty).asked((20, 15))
    options = {"init": "custom", "solver": solver, "asked": asked, "tol": 0.0, "max_iter": 30}
    errors = factorize(X, 4, W=START["W"], H=START["H"].T, **options).trace.rmse
    slack = 0.02 if "admm" in solver else 1e-9  # which is no descent method
    assert (np.diff(errors) <= slack * errors[0]).all()
    assert errors[-1] < errors[0]


@pytest.mark.parametrize("solver", ["her", "mu", "her-admm"])
def test_unit_of_the_data_is_carried_over_to_the_penalties(solver):
    """c·V with c^(3/2)·l1 and c·l2 has the minimiser √c·(W, H): so V / mean stands for V."""
    asked = Asked(Terms(0.4, 0.1), Terms(0.2, 0.3))
    one, other = (
        factorize(
            c * X,
            4,
            init="custom",
            solver=solver,
            W=c**0.5 * START["W"],
            H=c**0.5 * START["H"].T,
            asked=asked.scaled(c),
            max_iter=40,
            tol=0.0,
        )
        for c in (1.0, 1e4)
    )
    np.testing.assert_allclose(other.W / 100, one.W, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.H / 100, one.H, rtol=1e-6, atol=1e-9)


def problem_and_point() -> tuple[Problem, Factors]:
    asked = Asked(Terms(0.4, 0.1), Terms(0.2, 0.3))
    x = Factors(torch.from_numpy(START["W"]), torch.from_numpy(START["H"].T.copy()))
    return Problem(Dense(torch.from_numpy(X)), 4, asked), x


def test_stationarity_is_that_of_the_penalised_loss():
    problem, x = problem_and_point()
    W, H = (F.clone().requires_grad_() for F in x)
    problem.loss(Factors(W, H)).backward()
    assert W.grad is not None
    assert H.grad is not None
    size = (W.grad.square().sum() + H.grad.square().sum()).sqrt()  # all entries are positive
    torch.testing.assert_close(problem.stationarity(x), size)


def test_error_that_solvers_compare_is_twice_the_loss():
    problem, x = problem_and_point()
    torch.testing.assert_close(problem.sq_error(x), 2 * problem.loss(x))
    torch.testing.assert_close(problem.sq_error(x, problem.T.normal(x.H)), 2 * problem.loss(x))
    swapped = problem.T.sq_error(x.swap())
    torch.testing.assert_close(swapped, problem.sq_error(x))


def test_problem_without_terms_is_plain_from_both_sides():
    problem, _ = problem_and_point()
    assert not problem.is_plain
    plain = Problem(problem.V, 4)
    assert plain.is_plain
    assert plain.T.is_plain
    assert plain.normalized()[0].is_plain


def test_strong_penalty_leaves_nothing():
    model = NMF(4, alpha_W=10.0, l1_ratio=1.0)
    assert not model.fit_transform(X).any()
    assert not model.components_.any()


@pytest.mark.parametrize("solver", SOLVERS)
def test_fixed_columns_stay_and_the_others_learn(solver):
    fixed = torch.tensor([True, False, True, False])
    asked = Asked(Terms(), Terms(fixed=fixed))
    options = {"init": "custom", "solver": solver, "asked": asked, "tol": 0.0, "max_iter": 30}
    result = factorize(X, 4, W=START["W"], H=START["H"].T, **options)
    np.testing.assert_allclose(result.H[:, ::2], START["H"].T[:, ::2], rtol=1e-12)
    assert not np.allclose(result.H[:, 1::2], START["H"].T[:, 1::2])
    assert result.rmse < 0.8 * result.trace.rmse[0]


@pytest.mark.parametrize("solver", ["her", "hals", "her-admm"])
def test_fixed_columns_lead_to_the_same_optimum_as_a_plain_alternation(solver):
    """Against exact half-steps on the free columns alone, by numpy."""
    known = START["H"][:2]
    result = NMF(3, fixed_components=known, solver=solver, max_iter=600, tol=1e-8).fit(X).result_
    W, H = result.W, result.H
    rest = X - W[:, :2] @ known
    free = np.maximum(np.linalg.lstsq(W[:, 2:], rest, rcond=None)[0], 0)
    np.testing.assert_allclose(H[:, 2:].T, free, rtol=1e-3, atol=1e-5)


def test_terms_are_values():
    problem, x = problem_and_point()
    without = replace(problem, asked=Asked(Terms(), Terms()))
    assert float(problem.loss(x) - without.loss(x)) == pytest.approx(float(problem.penalty(x)))
