"""AO-ADMM with penalties and losses: each half-step against a general optimiser."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from factormer import kernels
from factormer.data import Dense, Normal, Observed
from factormer.data.factors import Factors
from factormer.penalties import (
    L1,
    L2,
    Bounds,
    Free,
    Group,
    Orthogonal,
    Penalties,
    Simplex,
    Smooth,
)
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import TraceAOADMM
from factormer.solvers.hals import HALS
from factormer.solvers.newton import Newton
from factormer.solvers.proximal import (
    ProximalADMM,
    Split,
    _Entrywise,
    admm_divergence,
    admm_quadratic,
    smooth_solver,
)

PENALTIES = {
    "nothing": [],
    "L1": [L1(0.5)],
    "L2": [L2(0.5)],
    "elastic": [L1(0.3), L2(0.2)],
    "Group-rows": [Group(0.8, by="rows")],
    "Group-columns": [Group(0.8)],
    "Smooth": [Smooth(2.0)],
    "Smooth-L1": [Smooth(2.0), L1(0.3)],
    "Orthogonal": [Orthogonal(0.3)],
    "Bounds": [Bounds(0.1, 0.4)],
    "Free": [Free(), L2(0.1)],
    "Simplex": [Simplex()],
    "Simplex-Smooth": [Simplex(), Smooth(1.0)],
    "Simplex-columns": [Simplex(by="columns")],
}
each_penalty = pytest.mark.parametrize("terms", PENALTIES.values(), ids=PENALTIES.keys())


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng) + 0.05


def excess(z: np.ndarray, shape: tuple[int, int], axis: int) -> np.ndarray:
    return z.reshape(shape).sum(axis) - 1


def best_by_scipy(problem: Problem, W: Tensor, H: Tensor) -> float:
    """The least objective over H that a general optimiser finds from H."""
    shape, terms = (H.shape[0], H.shape[1]), problem.on_h.terms

    def value(h: np.ndarray) -> float:
        return float(problem.objective(Factors(W, torch.from_numpy(h.reshape(shape)))))

    bounds = (0, None)
    for term in terms:
        bounds = (term.low, term.high) if isinstance(term, Bounds) else bounds
        bounds = (None, None) if isinstance(term, Free) else bounds
    sums = [
        {"type": "eq", "fun": partial(excess, shape=shape, axis=1 if t.by == "rows" else 0)}
        for t in terms
        if isinstance(t, Simplex)
    ]
    found = scipy.optimize.minimize(
        value, H.numpy().ravel(), method="SLSQP", bounds=[bounds] * H.numel(), constraints=sums,
        options={"maxiter": 500, "ftol": 1e-13},
    )  # fmt: skip
    return float(found.fun)


@torch.no_grad()
@each_penalty
def test_half_step_ends_where_a_general_optimiser_does(terms, rng):
    V, W, H = draw(rng, 10, 4), draw(rng, 10, 3), draw(rng, 4, 3)
    problem = Problem(Dense(V), 3, on_h=Penalties.of(terms))
    solver, split = ProximalADMM(n_inner=100), Split(torch.zeros_like(H))
    for _ in range(10):
        H, split = solver._half_step(problem, W, H, split)
    assert float(problem.objective(Factors(W, H))) <= best_by_scipy(problem, W, H) + 1e-5
    assert float(problem._step(Factors(W, H)).norm()) < 1e-3


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_convex_losses_end_where_newton_does(beta, weighted, rng):
    V, W, H = draw(rng, 10, 4), draw(rng, 10, 3), draw(rng, 4, 3)
    omega = draw(rng, 10, 4) * (draw(rng, 10, 4) > 0.4) if weighted else torch.ones_like(V)
    problem = Problem(Observed(Dense(V), omega), 3, Beta(beta))
    ours, _ = admm_divergence(problem, W, H, Split(torch.zeros_like(H)), n_inner=1500)
    theirs = H
    for _ in range(300):
        theirs, _ = Newton().half_step(problem, W, theirs)
    a, b = (float(problem.objective(Factors(W, F))) for F in (ours, theirs))
    assert a <= b * (1 + 1e-4) + 1e-8


@torch.no_grad()
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_losses_that_are_not_convex_are_lowered(beta, rng):
    """Below β = 1 a half-step has several minima, and ADMM may end in another than Newton."""
    V, W, H = draw(rng, 10, 4), draw(rng, 10, 3), draw(rng, 4, 3)
    problem = Problem(Dense(V), 3, Beta(beta))
    lower, _ = admm_divergence(problem, W, H, Split(torch.zeros_like(H)), n_inner=100)
    assert float(problem.objective(Factors(W, lower))) < float(problem.objective(Factors(W, H)))


@pytest.mark.slow
@torch.no_grad()
def test_abundances_under_kullback_leibler(rng):
    V, W, H = draw(rng, 10, 4), draw(rng, 10, 3), draw(rng, 4, 3)
    problem = Problem(Dense(V), 3, Beta(1.0), on_h=Penalties.of(Simplex()))
    H, _ = admm_divergence(problem, W, H, Split(torch.zeros_like(H)), n_inner=1500)
    torch.testing.assert_close(H.sum(dim=1), torch.ones(4, dtype=torch.float64))
    assert float(problem.objective(Factors(W, H))) <= best_by_scipy(problem, W, H) + 1e-5


def test_smooth_solver_solves(rng):
    A = draw(rng, 6, 3)
    G, rhs, mu = A.mT @ A + torch.eye(3, dtype=torch.float64), draw(rng, 8, 3), 0.7
    D = torch.eye(8, dtype=torch.float64).diff(dim=0)
    X = smooth_solver(G, mu)(rhs)
    torch.testing.assert_close(X @ G + mu * D.mT @ D @ X, rhs)
    torch.testing.assert_close(smooth_solver(G, 0.0)(rhs) @ G, rhs)


@torch.no_grad()
def test_without_penalties_it_is_ao_admm(rng):
    V, x = draw(rng, 8, 6), Factors(draw(rng, 8, 3), draw(rng, 6, 3))
    problem = Problem(Dense(V), 3)
    ours, theirs = ProximalADMM(n_inner=5), TraceAOADMM(tol=0.0)
    a, b = ours.init(problem, x), theirs.init(problem, x)
    for _ in range(3):
        a, b = ours.step(problem, a), theirs.step(problem, b)
    torch.testing.assert_close(a.factors.W, b.factors.W)
    torch.testing.assert_close(a.factors.H, b.factors.H)


@torch.no_grad()
def test_elastic_hals_ends_where_admm_does(rng):
    V, x = draw(rng, 8, 6), Factors(draw(rng, 8, 2), draw(rng, 6, 2))
    on = Penalties.of([L1(0.05), L2(0.1)])
    problem = Problem(Dense(V), 2, on_w=on, on_h=on)
    values = []
    solvers: list[Any] = [HALS(), ProximalADMM()]
    for solver in solvers:
        state = solver.init(problem, x)
        for _ in range(300):
            state = solver.step(problem, state)
        torch.testing.assert_close(state.sq_error(problem), 2 * problem.objective(state.factors))
        values.append(float(problem.objective(state.factors)))
        assert float(problem.stationarity(state.factors)) < 1e-3
    np.testing.assert_allclose(values[0], values[1], rtol=1e-4)


@torch.no_grad()
def test_stack_is_solved_as_its_members(rng):
    V, W, H = draw(rng, 2, 6, 5), draw(rng, 2, 6, 3), draw(rng, 2, 5, 3)
    on, solver = Penalties.of([Simplex()]), ProximalADMM()
    both = Problem(Dense(V), 3, Beta(1.0), on_w=on)
    state = solver.step(both, solver.init(both, Factors(W, H)))
    for k in range(2):
        one = Problem(Dense(V[k]), 3, Beta(1.0), on_w=on)
        alone = solver.step(one, solver.init(one, Factors(W[k], H[k])))
        torch.testing.assert_close(state.factors.W[k], alone.factors.W)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_compiled_entries_are_those_of_the_loss(beta, dtype, rng, monkeypatch):
    V = draw(rng, 30, 20).to(dtype)
    if beta > 1:
        V[:5] = 0
    fit, Z = V + draw(rng, 30, 20).to(dtype) - 0.5, draw(rng, 30, 20).to(dtype)
    omega = draw(rng, 30, 20).to(dtype)
    omega[::7] = 0  # unknown
    entrywise = _Entrywise.of(Problem(Observed(Dense(V), omega), 3, Beta(beta)))
    for guess in (V, 3 * V + 1):
        fast = entrywise(fit, guess.clone(), Z.clone())
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "proximal_entries", lambda *_: None)
            slow = entrywise(fit, guess, Z)
        torch.testing.assert_close(fast, slow)


@torch.no_grad()
def test_a_half_step_leaves_the_split_as_it_was(rng):
    V, W, H = draw(rng, 10, 4), draw(rng, 10, 3), draw(rng, 4, 3)
    problem = Problem(Dense(V), 3, Beta(0.0))
    _, split = admm_divergence(problem, W, H, Split(torch.zeros_like(H)), n_inner=2)
    before = [F.clone() for F in split if F is not None]
    admm_divergence(problem, W, H, split, n_inner=2)
    after = [F for F in split if F is not None]
    assert all(torch.equal(F, G) for F, G in zip(before, after, strict=True))


@torch.no_grad()
def test_a_half_step_factors_its_matrix_once(rng, monkeypatch):
    made = []
    monkeypatch.setattr(
        torch.linalg,
        "cholesky_ex",
        lambda G, plain=torch.linalg.cholesky_ex: made.append(1) or plain(G),
    )
    V, W, H = draw(rng, 10, 4), draw(rng, 10, 3), draw(rng, 4, 3)
    for beta in (2.0, 1.0):
        problem = Problem(Dense(V), 3, Beta(beta), on_h=Penalties.of(Simplex()))
        ProximalADMM()._half_step(problem, W, H, Split(torch.zeros_like(H)))
    assert len(made) == 2


def test_a_singular_system_leads_to_no_number_and_no_error():
    rhs = torch.ones(2, 3, dtype=torch.float64)
    assert bool(smooth_solver(torch.zeros(3, 3, dtype=torch.float64), 0.0)(rhs).isnan().all())


def test_a_heavy_penalty_leaves_a_system_that_can_be_solved(rng):
    V, W, H = draw(rng, 4, 5), 1e-9 * draw(rng, 4, 3), draw(rng, 5, 3)
    on_h = Penalties.of([Orthogonal(1e8)])
    problem = Problem(Dense(V), 3, Beta(1.0), on_h=on_h)
    after, _ = admm_divergence(problem, W, H, Split(torch.zeros_like(H)), n_inner=5)
    assert bool(after.isfinite().all())


BY_ROWS = {
    "nothing": Penalties(),
    "elastic": Penalties.of([L1(0.3), L2(0.2)]),
    "shares": Penalties.of(Simplex()),
    "sums": Penalties.of([Simplex(total=2.5), L2(0.1)]),
}


@pytest.mark.parametrize("on", BY_ROWS.values(), ids=BY_ROWS.keys())
@pytest.mark.parametrize("shape", [(9, 70, 4), (6, 32, 11), (5, 1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@torch.no_grad()
def test_compiled_steps_are_their_twins(on, shape, dtype, rng, monkeypatch):
    m, n, r = shape
    W, V, H = (draw(rng, *s).to(dtype) for s in ((m, r), (m, n), (n, r)))
    U = draw(rng, n, r).to(dtype) / 9
    H[0] = H[0, :1]  # all alike
    normal = Normal(V.mT @ W, W.mT @ W)
    found = admm_quadratic(normal, H, U, on, n_inner=10)
    monkeypatch.setattr(kernels, "admm_rows", lambda *wanted: None)
    expected = admm_quadratic(normal, H, U, on, n_inner=10)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    total = on.by_rows[2] if on.by_rows else None
    assert (found[0] >= 0).all()
    if total is not None:
        torch.testing.assert_close(found[0].sum(dim=1), torch.full((n,), total, dtype=dtype))


@torch.no_grad()
def test_compiled_steps_keep_what_is_not_a_number(rng):
    W, H = draw(rng, 6, 3), draw(rng, 5, 3)
    VtW = draw(rng, 6, 5).mT @ W
    VtW[2, 1] = torch.nan
    for on in BY_ROWS.values():
        found, _ = admm_quadratic(Normal(VtW, W.mT @ W), H, 0 * H, on, n_inner=3)
        assert found[2].isnan().any()
        assert found[[0, 1, 3, 4]].isfinite().all()
