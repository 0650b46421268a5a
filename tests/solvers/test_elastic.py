"""L1, L2 and known columns, by each solver that takes them, against scikit-learn and scipy."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import sklearn.decomposition
import torch

from factormer import NMF, custom_start, factorize
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.penalties import L1, L2, Fixed, Penalties, Simplex
from factormer.problem.problem import Problem
from factormer.solvers.hals import HALS

draw = np.random.default_rng(0)
X = 7 * draw.random((20, 4)) @ draw.random((4, 15)) + draw.random((20, 15))
START = dict(zip("WH", custom_start(X, 4, init="random", random_state=5), strict=True))
PENALTIES = [(0.05, 0.05, 0.0), (0.05, 0.05, 1.0), (0.02, 0.1, 0.5)]
OPTIMA: dict[tuple[float, float, float], float] = {}
HELD = torch.tensor([True, False, True, False])
each_loss = pytest.mark.parametrize(
    ("solver", "loss"),
    [("hals", 2.0), ("ao-admm", 2.0), ("newton", 2.0), ("newton", 1.0), ("newton", 0.5),
     ("mu", 1.0), ("mu-extrapolated", 1.0), ("ao-admm", 1.0)],
)  # fmt: skip


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
@pytest.mark.parametrize("solver", ["auto", "cd", "newton", "ao-admm"])
def test_solvers_reach_the_objective_of_scikit_learn(solver, penalty):
    alpha_W, alpha_H, ratio = penalty
    model = NMF(4, init="custom", solver=solver, max_iter=500, tol=1e-6)
    model.set_params(alpha_W=alpha_W, alpha_H=alpha_H, l1_ratio=ratio)
    W = model.fit_transform(X, **START)
    found = objective(W, model.components_, *penalty)
    assert found <= optimum(penalty) * (1 + 1e-3)
    assert model.trace_.loss[-1] == pytest.approx(found, rel=1e-3)


def test_strong_penalty_leaves_nothing():
    """Also of components that the other factor has let go of: only their penalty is left."""
    model = NMF(4, alpha_W=10.0, l1_ratio=1.0)
    assert not model.fit_transform(X).any()
    assert not model.components_.any()


@each_loss
def test_known_columns_stay_and_the_others_learn(solver, loss):
    known = Fixed(START["H"].T[:, ::2].copy(), HELD)
    options: Any = {"init": "custom", "solver": solver, "tol": 0.0, "max_iter": 40, "loss": loss}
    result = factorize(X, 4, W=START["W"], H=START["H"].T, regularize_H=known, **options)
    np.testing.assert_allclose(result.H[:, ::2], START["H"].T[:, ::2], rtol=1e-12)
    assert not np.allclose(result.H[:, 1::2], START["H"].T[:, 1::2])
    assert result.rmse < 0.8 * result.trace.rmse[0]


@pytest.mark.parametrize("solver", ["hals", "newton", "ao-admm"])
def test_free_columns_are_the_answer_to_what_the_known_ones_leave(solver):
    """Against scipy's nonnegative least squares, column by column."""
    known = START["H"][:2]
    model = NMF(3, fixed_components=known, solver=solver, max_iter=2000, tol=1e-7, random_state=0)
    W = model.fit_transform(X)
    rest = X - W[:, :2] @ known
    free = [scipy.optimize.nnls(W[:, 2:], column)[0] for column in rest.T]
    np.testing.assert_allclose(model.components_[2:].T, free, rtol=1e-3, atol=1e-5)


def test_known_columns_of_w_are_those_of_h_turned_round():
    columns = torch.from_numpy(START["H"].T[:, ::2].copy())
    one = factorize(X, 4, regularize_H=Fixed(columns, HELD), max_iter=10, tol=0.0)
    other = factorize(X.T.copy(), 4, regularize_W=Fixed(columns, HELD), max_iter=10, tol=0.0)
    np.testing.assert_allclose(other.W[:, ::2], columns)
    assert other.rmse == pytest.approx(one.rmse, rel=0.1)


def test_stationarity_leaves_known_columns_out():
    V, x = Dense(torch.from_numpy(X)), Factors(*(torch.from_numpy(F) for F in START.values()))
    x = Factors(x.W, x.H.mT.contiguous())
    everything = Fixed(x.H, torch.ones(4, dtype=torch.bool))
    free, held = (
        Problem(V, 4, on_h=Penalties.of(terms), on_w=Penalties.of(L2(0.1)))
        for terms in ([L1(0.2)], [L1(0.2), everything])
    )
    by_W = held.T._step(x.swap())
    assert float(held.stationarity(x)) == pytest.approx(float(by_W.norm()))
    assert float(free.stationarity(x)) > float(held.stationarity(x))


def test_step_lowers_the_objective_and_holds_columns():
    V, x = Dense(torch.from_numpy(X)), Factors(*(torch.from_numpy(F) for F in START.values()))
    x = Factors(x.W, x.H.mT.contiguous())
    on_h = Penalties.of([L1(0.2), Fixed(x.H[:, HELD], HELD)])
    problem, solver = Problem(V, 4, on_w=Penalties.of(L2(0.3)), on_h=on_h), HALS()
    with torch.no_grad():
        state = solver.step(problem, solver.init(problem, x))
    assert float(state.sq_error(problem)) < float(problem.sq_error(x))
    torch.testing.assert_close(state.sq_error(problem), problem.sq_error(state.factors))
    assert torch.equal(state.factors.H[:, HELD], x.H[:, HELD])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Fixed(np.ones((15, 3)), HELD), r"shape \(15, 3\) and marks 2 places; columns is"),
        (lambda: Penalties.of([Fixed(np.ones((15, 2)), HELD), Simplex()]), "and Fixed; a penalty"),
        (
            lambda: factorize(X, 4, regularize_H=Fixed(np.ones((9, 2)), HELD)),
            "Fixed columns of H have 9 entries, in 4 places; here H is 15×4",
        ),
        (
            lambda: factorize(X, 3, regularize_W=Fixed(np.ones((20, 2)), HELD)),
            "Fixed columns of W have 20 entries, in 4 places; here W is 20×3",
        ),
    ],
)
def test_wrong_known_columns_are_refused_with_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
