"""Newton steps: against a general optimiser and a literal twin; descent; however V is stored."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import torch
from torch import Tensor

from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data import Dense, Observed, Sparse, stored
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix
from factormer.kernels.core import core
from factormer.penalties import L1, L2, Fixed, Penalties, Simplex
from factormer.problem.losses import Beta
from factormer.problem.problem import Problem
from factormer.solvers.multiplicative import Multiplicative
from factormer.solvers.newton import Newton, coded, thinned
from tests.reference import newton_row

BETAS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
each_beta = pytest.mark.parametrize("beta", BETAS)
both = pytest.mark.parametrize(
    "by",
    [
        "reference",
        pytest.param("core", marks=pytest.mark.skipif(core() is None, reason="there is no core")),
    ],
)


def half_step(by: str, problem: Problem, W: Tensor, H: Tensor, n_steps: int = 1) -> Tensor:
    """Return the new H, by the literal steps or by those of the core, four sweeps each."""
    if by == "reference":
        return Newton(n_steps=n_steps).half_step(problem, W, H)
    found = coded(problem.T, Factors(H, W), n_steps, n_sweeps=4)
    assert found is not None
    return found.W


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng) + 0.05


def counts(rng: torch.Generator, m: int, n: int) -> Tensor:
    """Counts, two thirds of them zero."""
    return torch.poisson(3 * draw(rng, m, n) ** 3, generator=rng).double()


def weights_for(rng: torch.Generator, m: int, n: int) -> Tensor:
    return draw(rng, m, n) * (draw(rng, m, n) > 0.5)


def run(problem: Problem, x: Factors, solver=None, n_steps: int = 1, by: str = "") -> Factors:
    """Return the point after steps of a solver, or of H and W in turn by one of the two."""
    if by:
        W, H = x
        for _ in range(n_steps):
            H = half_step(by, problem, W, H)
            W = half_step(by, problem.T, H, W)
        return Factors(W, H)
    solver = solver or Newton()
    state = solver.init(problem, x)
    for _ in range(n_steps):
        state = solver.step(problem, state)
    return state.factors


@torch.no_grad()
@pytest.mark.parametrize("weighted", [False, True])
@each_beta
@both
def test_half_step_ends_at_the_least_point_for_a_given_w(by, beta, weighted, rng):
    V, W, H = draw(rng, 12, 3), draw(rng, 12, 4), draw(rng, 3, 4)
    omega = weights_for(rng, 12, 3) if weighted else torch.ones_like(V)
    on = Penalties.of([L1(0.05), L2(0.1)])
    matrix = Observed(Dense(V), omega) if weighted else Dense(V)
    problem = Problem(matrix, 4, Beta(beta), on_h=on)
    H = half_step(by, problem, W, H, n_steps=400)

    def value(h: np.ndarray) -> tuple[float, np.ndarray]:
        x = Factors(W, torch.from_numpy(h.reshape(3, 4)))
        gradient = problem.misfit.gradient(x) + 0.05 + 0.1 * x.H
        return float(problem.objective(x)), gradient.numpy().ravel()

    best = scipy.optimize.minimize(
        value, H.numpy().ravel(), jac=True, bounds=[(0, None)] * 12, method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 2000},
    )  # fmt: skip
    assert value(H.numpy().ravel())[0] <= best.fun * (1 + 1e-7)


@torch.no_grad()
@pytest.mark.parametrize("weighted", [False, True])
@each_beta
@both
def test_step_is_that_of_the_literal_twin(by, beta, weighted, rng):
    V, W, H = draw(rng, 9, 70), draw(rng, 9, 3), 3 * draw(rng, 70, 3)
    H[0], omega = 0, weights_for(rng, 9, 70) if weighted else torch.ones_like(V)
    H[1:30, 1], H[20:40, 2] = 0, 0
    on = Penalties.of([L1(0.02), L2(0.03)])
    matrix = Observed(Dense(V), omega) if weighted else Dense(V)
    problem, solver = Problem(matrix, 3, Beta(beta), on_h=on), Newton()
    ours = half_step(by, problem, W, H)
    for j in range(70):
        expected = newton_row(
            V[:, j].numpy(), omega[:, j].numpy(), W.numpy(), H[j].numpy(),
            beta=beta, l1=0.02, l2=0.03, near=solver.near, n_sweeps=solver.n_sweeps, least=1e-4,
        )  # fmt: skip
        np.testing.assert_allclose(ours[j], expected, rtol=1e-8, atol=1e-12)


@torch.no_grad()
@both
def test_many_rows_make_the_same_step_as_each_alone(by, rng):
    V, W, H = draw(rng, 9, 150), draw(rng, 9, 5), 3 * draw(rng, 150, 5)
    V[:, 3], H[0], H[1:90, 1], H[70:140, 2] = 0, 0, 0, 0
    held = Fixed(H[:, [4]], torch.tensor([False] * 4 + [True]))
    on = Penalties.of([L1(0.02), L2(0.03), held])
    whole = half_step(by, Problem(Dense(V), 5, Beta(1.0), on_h=on), W, H)
    assert torch.equal(whole[:, 4], H[:, 4])
    for j in (0, 3, 80, 149):
        one = Fixed(H[[j]][:, [4]], torch.tensor([False] * 4 + [True]))
        alone = Problem(
            Dense(V[:, [j]]), 5, Beta(1.0), on_h=Penalties.of([L1(0.02), L2(0.03), one])
        )
        rtol, atol = (0.0, 0.0) if by == "core" else (1e-9, 1e-12)
        torch.testing.assert_close(
            half_step(by, alone, W, H[[j]])[0], whole[j], rtol=rtol, atol=atol
        )


@torch.no_grad()
@pytest.mark.parametrize("kind", ["dense", "weighted", "stored", "sparse"])
@each_beta
def test_objective_never_rises_and_is_told_right(beta, kind, rng):
    V = counts(rng, 9, 7) if beta > 0 else draw(rng, 9, 7)
    V[0] = 0 if beta > 0 else 0.1
    omega = weights_for(rng, 9, 7)
    matrix = {
        "dense": lambda: Dense(V),
        "weighted": lambda: Observed(Dense(V), omega),
        "stored": lambda: stored(V, omega),
        "sparse": lambda: Sparse.of(scipy.sparse.csr_array(V.numpy())),
    }[kind]()
    problem = Problem(matrix, 3, Beta(beta), on_w=Penalties.of(L1(0.01)))
    solver, x = Newton(), Factors(draw(rng, 9, 3), draw(rng, 7, 3))
    state = solver.init(problem, x)
    before = float(problem.objective(x))
    for _ in range(25):
        state = solver.step(problem, state)
        now = float(problem.objective(state.factors))
        assert now <= before * (1 + 1e-10)
        np.testing.assert_allclose(float(state.sq_error(problem)), 2 * now, rtol=1e-9)
        assert all((F >= 0).all() and F.isfinite().all() for F in state.factors)
        before = now


@torch.no_grad()
@each_beta
@both
def test_however_v_is_stored(by, beta, rng):
    V = counts(rng, 9, 7) if beta > 0 else draw(rng, 9, 7)
    x = Factors(draw(rng, 9, 3), draw(rng, 7, 3))
    dense = run(Problem(Dense(V), 3, Beta(beta)), x, n_steps=3, by=by)
    sparse = run(
        Problem(Sparse.of(scipy.sparse.csr_array(V.numpy())), 3, Beta(beta)), x, n_steps=3, by=by
    )
    ones = run(Problem(Observed(Dense(V), torch.ones_like(V)), 3, Beta(beta)), x, n_steps=3, by=by)
    for other in (sparse, ones):
        torch.testing.assert_close(other.W, dense.W, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(other.H, dense.H, rtol=1e-8, atol=1e-10)
    omega = weights_for(rng, 9, 7)
    by_weights = run(Problem(Observed(Dense(V), omega), 3, Beta(beta)), x, n_steps=3, by=by)
    by_list = run(Problem(stored(V, omega), 3, Beta(beta)), x, n_steps=3, by=by)
    torch.testing.assert_close(by_list.W, by_weights.W, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(by_list.H, by_weights.H, rtol=1e-8, atol=1e-10)


@torch.no_grad()
@each_beta
@both
def test_a_weight_is_a_number_of_copies(by, beta, rng):
    V, x = draw(rng, 6, 5), Factors(draw(rng, 6, 2), draw(rng, 5, 2))
    copies = torch.tensor([1, 3, 2, 1, 1, 2])
    weighted = Observed(Dense(V), copies.double()[:, None].expand(6, 5).contiguous())
    one, many = Problem(weighted, 2, Beta(beta)), V.repeat_interleave(copies, dim=0)
    two = Problem(Dense(many), 2, Beta(beta))
    a = run(one, x, n_steps=3, by=by)
    b = run(two, Factors(x.W.repeat_interleave(copies, dim=0), x.H), n_steps=3, by=by)
    torch.testing.assert_close(a.H, b.H, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(a.W.repeat_interleave(copies, dim=0), b.W, rtol=1e-8, atol=1e-10)


@torch.no_grad()
@each_beta
@both
def test_permutation_and_transposition(by, beta, rng):
    V, x = draw(rng, 6, 5), Factors(draw(rng, 6, 2), draw(rng, 5, 2))
    p, q = torch.randperm(6, generator=rng), torch.randperm(5, generator=rng)
    a = run(Problem(Dense(V), 2, Beta(beta)), x, n_steps=2, by=by)
    turned = Problem(Dense(V[p][:, q].contiguous()), 2, Beta(beta))
    b = run(turned, Factors(x.W[p], x.H[q]), n_steps=2, by=by)
    torch.testing.assert_close(b.W, a.W[p], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(b.H, a.H[q], rtol=1e-8, atol=1e-10)
    problem = Problem(Dense(V), 2, Beta(beta))
    x1 = run(problem, x)
    swapped = run(problem.T, Factors(x1.H, x.W))
    torch.testing.assert_close(swapped.H, x1.W, rtol=1e-8, atol=1e-10)


@torch.no_grad()
def test_float32_agrees_with_float64(rng):
    V, x = counts(rng, 20, 15), Factors(draw(rng, 20, 3), draw(rng, 15, 3))
    a = run(Problem(Dense(V), 3, Beta(1.0)), x, n_steps=5)
    x32 = Factors(x.W.float(), x.H.float())
    b = run(Problem(Dense(V.float()), 3, Beta(1.0)), x32, n_steps=5)
    torch.testing.assert_close(b.W.double(), a.W, rtol=1e-2, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e6])
def test_starts_at_any_scale_are_recovered_from(scale, rng):
    V, W = counts(rng, 20, 15) + 0.1, draw(rng, 20, 3)
    problem = Problem(Dense(V), 3, Beta(1.0))
    good = problem.objective(run(problem, Factors(W, draw(rng, 15, 3)), n_steps=100))
    x = run(problem, Factors(W, scale * draw(rng, 15, 3)), n_steps=100)
    assert float(problem.objective(x)) <= 1.05 * float(good)


@torch.no_grad()
def test_extrapolation_needs_fewer_iterations_than_multiplicative_updates(rng):
    V = torch.poisson(5 * draw(rng, 30, 4) @ draw(rng, 4, 25), generator=rng)
    x = Factors(draw(rng, 30, 4), draw(rng, 25, 4))
    problem = Problem(Dense(V), 4, Beta(1.0))
    ours = run(problem, x, Restarted(Newton(), Extrapolation()), n_steps=20)
    theirs = run(problem, x, Multiplicative(), n_steps=100)
    assert float(problem.objective(ours)) < float(problem.objective(theirs))


def test_what_it_cannot_do_gets_a_sentence(rng):
    V, x = draw(rng, 6, 5), Factors(draw(rng, 6, 2), draw(rng, 5, 2))
    with pytest.raises(ValueError, match="only L1 and L2"):
        Newton().init(Problem(Dense(V), 2, Beta(1.0), on_w=Penalties.of(Simplex())), x)
    with pytest.raises(ValueError, match="one matrix on a CPU"):
        Newton().init(Problem(Dense(V[None]), 2, Beta(1.0)), x)


@torch.no_grad()
@each_beta
@pytest.mark.parametrize("above", [1e-3, -1e-3])
@both
def test_the_sign_of_next_to_nothing_does_not_decide(by, beta, above, rng):
    """A component that nothing is made of stays, whichever way rounding would have it go."""
    W = torch.cat([torch.full((6, 1), 1e-30, dtype=torch.float64), draw(rng, 6, 1)], dim=1)
    H = torch.tensor([[0.2, 0.7], [0.3, 0.4]]).double()
    V = (1 + above) * W[:, 1:] @ H[:, 1:].mT
    for data in (Dense(V), Observed(Dense(V), torch.full_like(V, 0.5))):
        found = half_step(by, Problem(data, 2, Beta(beta)), W, H)
        torch.testing.assert_close(found[:, 0], H[:, 0])


@torch.no_grad()
@pytest.mark.parametrize("beta", [1.0, 1.01])
@both
def test_components_of_little_curvature_move_too(by, beta):
    """Entries of 1e11 and of 1e-9 in one row: curvatures are 1e20 apart, and none is rounding."""
    V = torch.tensor([[1e11, 1e-9]], dtype=torch.float64)
    problem = Problem(Dense(V), 2, Beta(beta)).T
    H, W = torch.eye(2, dtype=torch.float64), torch.tensor([[5e10, 2e-9]], dtype=torch.float64)
    W = half_step(by, problem, H, W, n_steps=60)
    np.testing.assert_allclose(W, V, rtol=1e-6)


# Data that is mostly zero


def rare_counts(m: int, n: int, mean: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    expected = rng.gamma(0.5, size=(m, 3)) @ rng.gamma(0.5, size=(3, n))
    return rng.poisson(mean * expected / expected.mean()).astype(float)


def test_mostly_zero_counts_are_solved_on_stored_entries():
    V = rare_counts(200, 150, 0.1)
    problem = Problem(as_matrix(V), 3, Beta(1.0))
    thin = thinned(problem)
    assert isinstance(thin.V, Sparse)
    x = Factors(*(torch.rand(k, 3, dtype=torch.float64) + 0.1 for k in V.shape))
    assert float(thin.objective(x)) == pytest.approx(float(problem.objective(x)), rel=1e-12)
    dense, sparse = (Newton().step(p, Newton().init(p, x)).factors for p in (problem, thin))
    for one, other in zip(dense, sparse, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("V", "loss"),
    [
        (rare_counts(200, 150, 5.0), 1.0),
        (rare_counts(20, 15, 0.1), 1.0),
        (rare_counts(200, 150, 0.1), 2.0),
    ],
    ids=["full", "small", "squared error"],
)
def test_other_problems_stay_dense(V, loss):
    problem = Problem(as_matrix(V), 3, Beta(loss))
    assert thinned(problem) is problem
