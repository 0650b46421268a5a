"""Newton steps as a whole loop: what they are one by one."""

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import kernels
from factormer.accelerate.newton import ExtrapolatedNewton
from factormer.data import Dense, Sparse
from factormer.data.factors import Factors
from factormer.functions import factorize
from factormer.penalties import L1, L2, Fixed, Penalties
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.run.result import Status

pytestmark = pytest.mark.skipif(kernels.kullback_rows() is None, reason="numba is absent")


def draw(rng: torch.Generator, m: int = 70, n: int = 90, r: int = 5, *on: Penalties):
    V = torch.poisson(4 * torch.rand(m, r, generator=rng) @ torch.rand(r, n, generator=rng))
    x0 = Factors(*(torch.rand(k, r, dtype=torch.float64, generator=rng) for k in (m, n)))
    return Problem(Dense(V.double()), r, Beta(1.0), *on), x0


@torch.no_grad()
@pytest.mark.parametrize("kind", ["plain", "penalties", "known"])
def test_a_leap_is_so_many_steps(kind, rng):
    known = Fixed(torch.rand(90, 2, dtype=torch.float64), torch.arange(5) < 2)
    on = {
        "plain": (),
        "penalties": (Penalties.of([L1(0.1), L2(0.2)]), Penalties.of([L1(0.3), L2(0.1)])),
        "known": (Penalties(), Penalties((known,))),
    }[kind]
    problem, x0 = draw(rng, 70, 90, 5, *on)
    x0 = Factors(x0.W, problem.on_h.placed(x0.H))
    solver = ExtrapolatedNewton()
    one = many = solver.init(problem, x0)
    errors = []
    for _ in range(12):
        one = solver.step(problem, one)
        errors.append(float(one.sq_error(problem)))
    many, first = solver.leap(problem, many, 5)
    many, second = solver.leap(problem, many, 7)
    np.testing.assert_allclose(torch.cat([first, second]), errors, rtol=1e-8)
    for a, b in zip(many.factors, one.factors, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(float(many.sq_error(problem)), float(problem.sq_error(many.factors)))


@torch.no_grad()
def test_there_is_no_leap_but_on_small_dense_counts(rng):
    problem, x0 = draw(rng)
    solver = ExtrapolatedNewton()
    state = solver.init(problem, x0)
    assert len(solver.leap(problem, state, 3)[1]) == 3
    V = problem.V
    assert isinstance(V, Dense)
    others = (
        Problem(V, 5, Beta(0.5)),
        Problem(Sparse.of(scipy.sparse.csr_array(V.entries.numpy())), 5, Beta(1.0)),
        Problem(V.to(torch.float32), 5, Beta(1.0)),
        draw(rng, 800, 800, 5)[0],
    )
    for other in others:
        assert not len(solver.leap(other, state, 3)[1])


@torch.no_grad()
@pytest.mark.parametrize("tol", [0.0, 1e-4])
def test_an_exact_fit_is_an_end_like_others(tol):
    """The divergence is rounding there, which may be below zero."""
    V = torch.zeros(15, 10, dtype=torch.float64)
    V[:5, :5] = V[:5, 5:] = torch.diag(torch.arange(1.0, 6.0, dtype=torch.float64))
    result = factorize(V, 5, loss="kullback-leibler", init="nndsvda", tol=tol, max_iter=60)
    assert result.status is not Status.NONFINITE
    assert result.n_iter >= 10
    assert result.rmse < 1e-4
