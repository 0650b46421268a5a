"""What holds for every registered solver, under every loss and penalty that it says it serves.

By single steps and by leaps, with gradients and without, dense, sparse and stacked.
"""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from factormer.data.factors import Factors
from factormer.data.intake import as_matrix
from factormer.data.observations import observe
from factormer.penalties import L1, L2, Group, Simplex, Smooth, Volume
from factormer.problem.problem import Problem
from factormer.run.registry import SOLVERS, Asked, Kind
from factormer.run.request import Request

M, N, RANK = 7, 6, 2
FEW = settings(max_examples=2)

ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "L1 and L2": {"regularize_W": L1(0.1), "regularize_H": [L1(0.01), L2(0.2)]},
    "simplex": {"regularize_W": Simplex(), "regularize_H": Smooth(0.1)},
    "volume": {"regularize_W": Simplex(), "regularize_H": Volume(0.1)},
    "group": {"regularize_H": Group(0.1)},
    "KL": {"loss": "kullback-leibler"},
    "KL, L1": {"loss": "kullback-leibler", "regularize_H": L1(0.1)},
    "KL, simplex": {"loss": "kullback-leibler", "regularize_W": Simplex()},
    "IS": {"loss": "itakura-saito"},
    "β = 1.5": {"loss": 1.5},
    "β = 3": {"loss": 3.0},
    "masked": {"mask": True},
    "KL, masked": {"loss": "kullback-leibler", "mask": True},
    "symmetric": {"symmetric": True},
}


def entries(seed: int, *, is_symmetric: bool = False) -> np.ndarray:
    """A matrix of positive entries."""
    V = np.random.default_rng(seed).uniform(0.1, 2.0, (M, M if is_symmetric else N))
    return (V + V.T) / 2 if is_symmetric else V


def problem_of(V: Any, asked: dict[str, Any]) -> Problem:
    """The problem, as a request has it, of mean about 1."""
    asked = dict(asked)
    mask = np.arange(M * N).reshape(M, N) % 5 > 0 if asked.pop("mask", False) else None
    matrix = as_matrix(V) if mask is None else observe(V, mask=mask)
    return Request.of(matrix, RANK, **asked).problem


def start(problem: Problem, seed: int) -> Factors:
    """A positive point, with what penalties ask of it."""
    *batch, m, n = problem.V.shape
    rng = torch.Generator().manual_seed(seed)
    W, H = (
        0.5 + torch.rand(*batch, size, RANK, generator=rng, dtype=torch.float64) for size in (m, n)
    )
    W = W / W.sum(dim=-1, keepdim=True)
    return Factors(W, W if m == n else H)


def served() -> list[Any]:
    """Each registered solver with each demand that it says it serves."""
    pairs = []
    for k, kind in enumerate(SOLVERS):
        for name, asked in ASKED.items():
            tied = asked.get("symmetric", False)
            problem = problem_of(entries(0, is_symmetric=tied), asked)
            if kind.lacks(Asked(problem, tied)) is None:
                pairs.append(pytest.param(kind, asked, id=f"{k}-{kind.name}-{name}"))
    return pairs


each = pytest.mark.parametrize(("kind", "asked"), served())
seeds = st.integers(0, 2**31 - 1)


def steps(kind: Kind, problem: Problem, x0: Factors, n_iter: int) -> list[Any]:
    """The states after so many single steps."""
    solver = kind.make(problem)
    states = [solver.init(problem, x0)]
    for _ in range(n_iter):
        states.append(solver.step(problem, states[-1]))
    return states[1:]


def assert_alike(x: Factors, y: Factors, rtol: float = 1e-6) -> None:
    for F, G in zip(x, y, strict=True):
        torch.testing.assert_close(F, G, rtol=rtol, atol=rtol * float(G.detach().abs().max()))


def test_every_solver_serves_something_here_and_every_demand_is_served():
    pairs = [p.values for p in served()]
    assert {id(kind) for kind, _ in pairs} == {id(kind) for kind in SOLVERS}
    assert len({str(asked) for _, asked in pairs}) == len(ASKED)


@each
@FEW
@given(seed=seeds)
@torch.no_grad()
def test_iterates_are_feasible_and_finite_and_the_error_is_that_of_the_point(kind, asked, seed):
    problem = problem_of(entries(seed, is_symmetric="symmetric" in asked), asked)
    for state in steps(kind, problem, start(problem, seed), 3):
        for F in state.factors:
            assert bool(F.isfinite().all())
            assert float(F.min()) >= 0
        error = float(state.sq_error(problem))
        assert error == pytest.approx(
            2 * float(problem.objective(state.factors)), rel=1e-6, abs=1e-9
        )


@each
@FEW
@given(seed=seeds)
@torch.no_grad()
def test_steps_lead_down(kind, asked, seed):
    problem = problem_of(entries(seed, is_symmetric="symmetric" in asked), asked)
    x0 = start(problem, seed)
    best = min(float(problem.objective(s.factors)) for s in steps(kind, problem, x0, 15))
    assert best <= float(problem.objective(x0)) * (1 + 1e-9)


@each
@FEW
@given(seed=seeds)
def test_gradients_change_no_number(kind, asked, seed):
    problem = problem_of(entries(seed, is_symmetric="symmetric" in asked), asked)
    x0 = start(problem, seed)
    with torch.no_grad():
        plain = steps(kind, problem, x0, 2)[-1].factors
    with torch.enable_grad():
        followed = steps(kind, problem, x0, 2)[-1].factors
    assert_alike(followed, plain)


@each
@FEW
@given(seed=seeds)
@torch.no_grad()
def test_a_leap_is_its_steps(kind, asked, seed):
    problem = problem_of(entries(seed, is_symmetric="symmetric" in asked), asked)
    x0, solver = start(problem, seed), kind.make(problem)
    if not hasattr(solver, "leap"):
        return
    leapt, errors = solver.leap(problem, solver.init(problem, x0), 4)
    if len(errors) == 4:
        assert_alike(leapt.factors, steps(kind, problem, x0, 4)[-1].factors)


@each
@FEW
@given(seed=seeds)
@torch.no_grad()
def test_a_stack_is_its_members(kind, asked, seed):
    if "mask" in asked:
        return
    V = np.stack([entries(seed + k, is_symmetric="symmetric" in asked) for k in range(2)])
    both = problem_of(V, asked)
    if kind.lacks(Asked(both, "symmetric" in asked)) is not None or kind.name == "newton":
        return
    x0 = start(both, seed)
    together = steps(kind, both, x0, 3)[-1].factors
    for k in range(2):
        alone = problem_of(V[k], asked)
        mine = steps(kind, alone, Factors(x0.W[k], x0.H[k]), 3)[-1].factors
        assert_alike(Factors(together.W[k], together.H[k]), mine)


@each
@FEW
@given(seed=seeds)
@torch.no_grad()
def test_sparse_data_is_solved_as_dense(kind, asked, seed):
    proximal = kind.name == "ao-admm" and asked.get("loss")  # which forms W Hᵀ
    if "mask" in asked or asked.get("loss") in ("itakura-saito",) or proximal:
        return
    V = entries(seed, is_symmetric="symmetric" in asked)
    dense, sparse = (problem_of(A, asked) for A in (V, scipy.sparse.csr_array(V)))
    x0 = start(dense, seed)
    if kind.name in ("ahead", "her", "hals") and not asked:
        return  # whose sweeps follow the cost of a product: tests/laws/test_twins.py
    if kind.name == "newton" and asked.get("loss") == "kullback-leibler":
        return  # which is bolder on dense counts
    a, b = (steps(kind, p, x0, 2)[-1].factors for p in (dense, sparse))
    assert_alike(a, b)
