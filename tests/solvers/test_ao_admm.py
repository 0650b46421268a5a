"""AO-ADMM: against scipy's NNLS and a literal transcription; scales, batches, hard cases."""

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from factormer.data import Dense, Normal
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import AOADMM, TraceAOADMM, admm_nnls, spd_inverse
from tests import reference

SOLVERS = {"AOADMM": AOADMM(), "TraceAOADMM": TraceAOADMM()}
each_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


@pytest.fixture
def active_case(rng) -> tuple[Tensor, Tensor, np.ndarray]:
    """W, V and the solution H of scipy, about half of it zero: V is no product of W."""
    W, V = draw(rng, 12, 4), 3 * draw(rng, 12, 7) - 1
    H = np.stack([scipy.optimize.nnls(W.numpy(), v)[0] for v in V.T.numpy()])
    assert 0.2 < (H == 0).mean() < 0.8
    return W, V, H


def nnls(W: Tensor, V: Tensor, *, rho: float = 1.0, n_inner: int, tol: float = 0.0) -> Tensor:
    zero = torch.zeros(V.shape[-1], W.shape[-1], dtype=W.dtype)
    rho_ = torch.tensor(rho, dtype=W.dtype)
    return admm_nnls(Dense(V).normal(W), zero, zero, rho=rho_, n_inner=n_inner, tol=tol)[0]


# Nonnegative least squares


def test_admm_solves_nnls_where_constraints_are_active(active_case):
    W, V, expected = active_case
    np.testing.assert_allclose(nnls(W, V, n_inner=500), expected, atol=1e-10)


@pytest.mark.parametrize("rho", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("n_inner", [1, 5, 40])
def test_sweeps_agree_with_an_explicit_inverse(active_case, rho, n_inner):
    W, V, _ = active_case
    expected, _ = reference.admm(W, V, rho=rho, n_inner=n_inner)
    torch.testing.assert_close(nnls(W, V, rho=rho, n_inner=n_inner), expected, rtol=0, atol=1e-10)


def test_dual_step_as_printed_diverges(active_case):
    """Eq. 22 has the wrong sign: with it the error grows without bound (docs/paper.md)."""
    W, V, solution = active_case
    H, U = reference.admm(W, V, rho=1.0, n_inner=200, dual_sign=-1)
    assert U.abs().max() > 1e6
    assert not np.allclose(H, solution, atol=0.1)
    right, _ = reference.admm(W, V, rho=1.0, n_inner=500)
    np.testing.assert_allclose(right, solution, atol=1e-10)


def test_warm_start_at_the_solution_stays_there(active_case):
    W, V, _ = active_case
    normal, rho = Dense(V).normal(W), torch.tensor(1.0, dtype=W.dtype)
    zero = torch.zeros(7, 4, dtype=W.dtype)
    H, U = admm_nnls(normal, zero, zero, rho=rho, n_inner=1000)
    again, dual = admm_nnls(normal, H, U, rho=rho, n_inner=3)
    torch.testing.assert_close(again, H, rtol=0, atol=1e-12)
    torch.testing.assert_close(dual, U, rtol=0, atol=1e-12)


def test_tolerance_ends_the_sweeps_early_and_near_the_solution(active_case):
    W, V, solution = active_case
    loose, tight = nnls(W, V, n_inner=500, tol=1e-2), nnls(W, V, n_inner=500, tol=1e-20)
    assert torch.equal(loose, nnls(W, V, n_inner=10_000, tol=1e-2))  # the tolerance stopped it
    assert not np.allclose(loose, solution, atol=1e-6)
    np.testing.assert_allclose(tight, solution, atol=1e-8)


def test_tolerance_stops_each_member_of_a_batch_on_its_own(rng):
    """Members that need different numbers of sweeps end where they would end alone."""
    W = draw(rng, 3, 12, 4) * torch.tensor([0.3, 1.0, 4.0])[:, None, None]
    V = 3 * draw(rng, 3, 12, 7) - 1
    zero, rho = torch.zeros(3, 7, 4, dtype=W.dtype), torch.ones(3, dtype=W.dtype)
    options = {"n_inner": 300, "tol": 1e-3}
    H, U = admm_nnls(Dense(V).normal(W), zero, zero, rho=rho, **options)
    sweeps = set()
    for k in range(3):
        normal = Dense(V[k]).normal(W[k])
        alone, dual = admm_nnls(normal, zero[k], zero[k], rho=rho[k], **options)
        torch.testing.assert_close(H[k], alone, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(U[k], dual, rtol=1e-12, atol=1e-12)
        counts = (n for n in range(301) if torch.equal(nnls(W[k], V[k], n_inner=n), alone))
        sweeps.add(next(counts, None))
    assert None not in sweeps
    assert len(sweeps) == 3


def test_inverse_of_a_positive_definite_stack_is_its_inverse(rng):
    A = draw(rng, 5, 6, 4)
    G = A.mT @ A + 0.1 * torch.eye(4, dtype=A.dtype)
    torch.testing.assert_close(spd_inverse(G), torch.linalg.inv(G))


# The solvers


def step(solver, problem: Problem, x0: Factors, n_steps: int = 1) -> Factors:
    state = solver.init(problem, x0)
    for _ in range(n_steps):
        state = solver.step(problem, state)
    return state.factors


def draw_problem(rng: torch.Generator) -> tuple[Problem, Factors]:
    V = draw(rng, 9, 3) @ draw(rng, 3, 7) + 0.1 * draw(rng, 9, 7)
    return Problem(Dense(V), 3), Factors(draw(rng, 9, 3), draw(rng, 7, 3))


def test_papers_step_is_five_sweeps_of_h_then_of_w_from_zero_duals(rng):
    problem, (W, H) = draw_problem(rng)
    one, zero = torch.ones((), dtype=W.dtype), torch.zeros_like
    options = {"rho": one, "n_inner": 5}
    expected_H, _ = admm_nnls(problem.V.normal(W), H, zero(H), **options)
    expected_W, _ = admm_nnls(problem.V.T.normal(expected_H), W, zero(W), **options)
    x = step(AOADMM(), problem, Factors(W, H))
    torch.testing.assert_close(x, Factors(expected_W, expected_H))


def test_trace_variant_keeps_its_duals(rng):
    V = (3 * draw(rng, 9, 7) - 1).clamp(min=0)  # far from a product, so that constraints are active
    problem, x0 = Problem(Dense(V), 3), Factors(draw(rng, 9, 3), draw(rng, 7, 3))
    solver = TraceAOADMM(tol=0.0)
    first = solver.step(problem, solver.init(problem, x0))
    assert all(U.any() for U in first.duals)
    warm = solver.step(problem, first)
    cold = solver.step(problem, solver.init(problem, first.factors))
    assert not torch.allclose(warm.factors.H, cold.factors.H)


def test_adopted_point_keeps_the_duals_of_the_trace_variant(rng):
    problem, x0 = draw_problem(rng)
    solver = TraceAOADMM()
    state = solver.step(problem, solver.init(problem, x0))
    adopted = solver.adopt(problem, state, x0)
    assert adopted.factors is x0
    assert adopted.duals is state.duals


@pytest.mark.parametrize("c", [1e-6, 0.3, 1e6])
def test_trace_variant_is_free_of_scale(c, rng):
    problem, x0 = draw_problem(rng)
    scaled = Problem(problem.V.scaled(torch.tensor(c, dtype=x0.W.dtype)), 3)
    expected = step(TraceAOADMM(), problem, x0, n_steps=8).scale(c)
    torch.testing.assert_close(step(TraceAOADMM(), scaled, x0.scale(c), n_steps=8), expected)


def test_papers_variant_depends_on_the_scale(rng):
    problem, x0 = draw_problem(rng)
    scaled = Problem(problem.V.scaled(torch.tensor(100.0, dtype=x0.W.dtype)), 3)
    expected = step(AOADMM(), problem, x0).scale(100.0)
    assert not torch.allclose(step(AOADMM(), scaled, x0.scale(100.0)).W, expected.W, rtol=1e-3)


@each_solver
def test_fits_an_exact_product(solver, rng):
    V = draw(rng, 12, 2) @ draw(rng, 2, 10)
    problem, x0 = Problem(Dense(V), 2), Factors(draw(rng, 12, 2), draw(rng, 10, 2))
    assert problem.rmse(step(solver, problem, x0, n_steps=300)) < 1e-3 * problem.rmse(x0)


@each_solver
def test_float32_agrees_with_float64(solver, rng):
    problem, x0 = draw_problem(rng)
    V = problem.V
    assert isinstance(V, Dense)
    single = Problem(Dense(V.entries.float()), 3)
    x = step(solver, single, Factors(*(F.float() for F in x0)), n_steps=10)
    y = step(solver, problem, x0, n_steps=10)
    assert x.W.dtype == torch.float32
    torch.testing.assert_close(x.W.double(), y.W, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(x.H.double(), y.H, rtol=1e-3, atol=1e-4)


# Hard cases


@each_solver
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["W = 0", "W = H = 0", "equal columns", "zero column", "tiny W"])
def test_degenerate_starts_stay_finite(solver, dtype, kind, rng):
    problem, (W, H) = draw_problem(rng)
    W, H = W.to(dtype), H.to(dtype)
    match kind:
        case "W = 0":
            W = 0 * W
        case "W = H = 0":
            W, H = 0 * W, 0 * H
        case "equal columns":
            W, H = W[:, :1].expand(-1, 3).clone(), H[:, :1].expand(-1, 3).clone()
        case "zero column":
            W = W.index_fill(1, torch.tensor([1]), 0)
        case "tiny W":
            W = 1e-25 * W
    V = problem.V
    assert isinstance(V, Dense)
    x = step(solver, Problem(Dense(V.entries.to(dtype)), 3), Factors(W, H), n_steps=5)
    assert all(F.isfinite().all() and (F >= 0).all() for F in x)


@each_solver
def test_zero_w_leaves_h_where_it_is_in_the_first_half_step(solver, rng):
    problem, x0 = draw_problem(rng)
    x = step(solver, problem, Factors(0 * x0.W, x0.H))
    torch.testing.assert_close(x.H, x0.H)


def test_single_row_column_and_component_are_solved():
    problem = Problem(Dense(torch.tensor([[6.0]], dtype=torch.float64)), 1)
    x0 = Factors(torch.full((1, 1), 2.0).double(), torch.full((1, 1), 1.0).double())
    x = step(TraceAOADMM(), problem, x0, n_steps=50)
    torch.testing.assert_close(x.W @ x.H.mT, problem.V @ torch.ones(1, 1).double())


def test_gradients_reach_through_a_step(rng):
    V = draw(rng, 4, 3).requires_grad_()
    W, H = draw(rng, 4, 2).requires_grad_(), draw(rng, 3, 2).requires_grad_()

    def factors(V: Tensor, W: Tensor, H: Tensor) -> tuple[Tensor, ...]:
        return tuple(step(AOADMM(), Problem(Dense(V), 2), Factors(W, H)))

    assert torch.autograd.gradcheck(factors, (V, W, H))


def test_normal_equations_are_all_that_is_needed(rng):
    """The kernel sees (VᵀW, WᵀW) and never V: a problem of another height with the same pair."""
    W, V = draw(rng, 12, 4), draw(rng, 12, 7)
    Q = torch.linalg.qr(W)[0]
    short = Normal((V.mT @ Q) @ (Q.mT @ W), (Q.mT @ W).mT @ (Q.mT @ W))
    zero, rho = torch.zeros(7, 4, dtype=W.dtype), torch.ones((), dtype=W.dtype)
    H, _ = admm_nnls(short, zero, zero, rho=rho, n_inner=20)
    torch.testing.assert_close(H, nnls(W, V, n_inner=20))
