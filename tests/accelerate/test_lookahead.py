"""Lookahead: what the products tell of V, and what is made of it before V is read again."""

import math
from itertools import islice, pairwise

import pytest
import torch

from factormer import factorize
from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER
from factormer.accelerate.lookahead import Lookahead
from factormer.data import Dense, agreeing
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.hals import HALS
from tests.steps import steps


def noisy(m: int = 60, n: int = 50, r: int = 4, noise: float = 0.3) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    W, H, E = (torch.rand(k, generator=rng).double() for k in ((m, r), (n, r), (m, n)))
    return W @ H.mT + noise * E


def start(V: torch.Tensor, r: int = 4) -> Factors:
    rng = torch.Generator().manual_seed(1)
    W, H = (torch.rand(k, r, generator=rng).double() for k in V.shape)
    return Factors(W, H)


def surrogate(V: torch.Tensor, x: Factors) -> torch.Tensor:
    low = agreeing(Dense(V), x.W, V.mT @ x.W, x.H, V @ x.H)
    return low.U @ low.Z.mT


def errors(V: torch.Tensor, solver, n_iter: int) -> list[float]:
    states = islice(steps(Problem(Dense(V), 4), solver, start(V)), 1, n_iter + 1)
    return [float((V - s.factors.W @ s.factors.H.mT).square().sum()) for s in states]


@pytest.mark.parametrize("columns", [[0, 1, 2, 3], [0, 1, 1, 3]], ids=["full", "repeated"])
def test_the_surrogate_gives_the_same_products(columns):
    V, x = noisy(), start(noisy())
    x = Factors(x.W[:, columns], x.H[:, columns])
    known = surrogate(V, x)
    torch.testing.assert_close(known.mT @ x.W, V.mT @ x.W)
    torch.testing.assert_close(known @ x.H, V @ x.H)


def test_the_surrogate_differs_by_terms_of_second_order():
    V, x = noisy(), start(noisy())
    known, low = surrogate(V, x), agreeing(Dense(V), x.W, V.mT @ x.W, x.H, V @ x.H)
    dW, dH = (torch.rand_like(F) for F in x)
    off = []
    for t in (1e-1, 1e-2):
        y = Factors(x.W + t * dW, x.H + t * dH)
        true = (V - y.W @ y.H.mT).square().sum()
        off.append(float((low.sq_error(y) - true).abs()))
    assert off[1] < 2e-2 * off[0]
    torch.testing.assert_close(low.sq_norm(), V.square().sum())
    assert float(low.lost) == pytest.approx(float((V - known).square().sum()))


def test_zero_columns_are_no_trouble():
    V, x = noisy(), start(noisy())
    x.W[:, 0] = x.H[:, 2] = 0
    assert surrogate(V, x).isfinite().all()


def test_it_reads_v_less_often_than_extrapolation():
    V = noisy(300, 200, noise=0.05)
    extrapolated = errors(V, HER(), 300)
    target = 1.002 * min(extrapolated)
    count = next(t for t, e in enumerate(extrapolated, 1) if e <= target)
    fewer = math.ceil(0.6 * count) - 1
    assert min(errors(V, Lookahead(), fewer)) <= target


def test_where_nothing_is_made_ahead_it_is_extrapolated_hals():
    V = noisy()
    plain = errors(V, Restarted(HALS(), Extrapolation()), 12)
    assert errors(V, Lookahead(n_ahead=0, first=0), 12) == pytest.approx(plain, rel=1e-12)


def test_the_error_never_rises_and_plain_iterations_are_not_lost():
    curve = errors(noisy(), Lookahead(), 40)
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(curve))


def test_after_a_refused_iteration_nothing_is_counted_of_those_ahead():
    V, solver = noisy(), Lookahead()
    problem = Problem(Dense(V), 4)
    with torch.no_grad():
        state = solver.step(problem, solver.init(problem, start(V)))
        assert state.memory.made > 0
        refused = solver.step(problem, state._replace(error=torch.zeros_like(state.error)))
    assert bool(refused.plain)
    assert refused.memory.made == 0
    assert refused.memory.factors is state.factors


def test_large_matrices_are_solved_ahead_by_default():
    V = noisy(300, 280, 3).numpy()
    by_default = factorize(V, 3, max_iter=6, tol=0.0, accelerator=None, init="nndsvd")
    assert by_default.n_iter == 6
    with pytest.raises(ValueError, match="one matrix"):
        factorize(torch.rand(2, 8, 7), 2, solver="ahead")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_named_solver_serves_both_precisions_and_the_network(dtype):
    V = noisy().to(dtype)
    for accelerator in (None, "any-rank"):
        result = factorize(V, 4, solver="ahead", accelerator=accelerator, max_iter=20)
        assert result.W.dtype == dtype
        assert float(result.rmse) < 0.1
