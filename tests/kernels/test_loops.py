"""Compiled loops against their twins in torch: sweeps, and whole iterations of HER."""

import sys
from itertools import islice

import numpy as np
import pytest
import torch
from numba import types
from numba.core.dispatcher import Dispatcher
from torch import Tensor

from factormer import kernels
from factormer.accelerate.base import Resumable
from factormer.accelerate.extrapolate import Extrapolation
from factormer.accelerate.her import HER, Leapt
from factormer.data import Dense, LowRank, Matrix, Normal, Sparse
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix
from factormer.kernels import _loaded, compiled, loops
from factormer.problem.problem import Problem
from factormer.solvers.hals import FLAT, HALS, sweep
from tests.steps import steps

ORDERS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda A: np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda A: A[:, ::-1].copy()[:, ::-1],
}
DTYPES = pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-4)], ids=["double", "single"]
)


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=rng, dtype=torch.float64)


def test_loops_are_there_where_numba_is():
    assert compiled() is loops


def test_loops_are_none_where_numba_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "factormer.kernels.loops", None)
    monkeypatch.delattr(kernels, "loops", raising=False)
    assert _loaded.__wrapped__("loops") is None


def test_loops_are_none_where_numba_may_not_compile(monkeypatch):
    for name in ("loops", "compile"):
        monkeypatch.delitem(sys.modules, f"factormer.kernels.{name}")
    monkeypatch.setattr("numba.core.config.DISABLE_JIT", 1)
    assert _loaded.__wrapped__("loops") is None


# Sweeps


def swept(normal: Normal, H: Tensor, n_sweeps: int) -> Tensor:
    H = H.clamp(min=0)
    for _ in range(n_sweeps):
        H = sweep(normal, H)
    return H


def run(normal: Normal, H: Tensor, count: int, order="C", parts: tuple[int, ...] = ()) -> Tensor:
    """The compiled sweeps, on parts of the rows one after the other."""
    arrange, n = ORDERS[order], len(H)
    g = loops.scaled(normal.WtW.numpy(), FLAT[H.dtype])
    Ft, Xt = (arrange(F.mT.numpy()) for F in (normal.VtW, H))
    out = arrange(np.full_like(Xt, np.nan))
    for start, stop in zip((0, *parts), (*parts, n), strict=True):
        loops.sweeps(g.dtype)(Ft, Xt, out, count, start, stop, *loops.Scratch.of(g))
    return torch.from_numpy(out.T.copy())


def normal_of(rng: torch.Generator, n: int, r: int, dtype: torch.dtype) -> tuple[Normal, Tensor]:
    """A problem whose solution has zeros, and a start that is negative in part."""
    W, V = draw(rng, 20, r), 3 * draw(rng, 20, n) - 1
    return Dense(V.to(dtype)).normal(W.to(dtype)), (draw(rng, n, r) - 0.2).to(dtype)


@DTYPES
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n_sweeps", [0, 1, 4])
def test_sweeps_are_those_in_torch_in_every_memory_order(n_sweeps, order, dtype, atol, rng):
    normal, H = normal_of(rng, 131, 5, dtype)
    expected = swept(normal, H, n_sweeps)
    assert (expected == 0).any()
    found = run(normal, H, n_sweeps, order)
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@DTYPES
@pytest.mark.parametrize("n", [1, 7, 128, 300])
@pytest.mark.parametrize("r", [1, 3, 4, 9])
def test_sweeps_are_those_in_torch_at_every_size(n, r, dtype, atol, rng):
    normal, H = normal_of(rng, n, r, dtype)
    torch.testing.assert_close(run(normal, H, 2), swept(normal, H, 2), rtol=0, atol=atol)


@pytest.mark.parametrize("parts", [(1,), (128,), (100, 200), (5, 5, 299)], ids=str)
def test_parts_of_the_rows_make_up_the_whole(parts, rng):
    normal, H = normal_of(rng, 300, 5, torch.float64)
    torch.testing.assert_close(run(normal, H, 3, parts=parts), run(normal, H, 3))


def test_rows_outside_the_part_are_left_alone(rng):
    normal, H = normal_of(rng, 300, 5, torch.float64)
    Xt, out = H.mT.numpy(), np.full((5, 300), 7.0)
    room = loops.Scratch.of(loops.scaled(normal.WtW.numpy(), 0.0))
    loops.sweeps(out.dtype)(normal.VtW.mT.numpy(), Xt, out, 1, 10, 20, *room)
    assert (out[:, :10] == 7).all()
    assert (out[:, 20:] == 7).all()
    assert (out[:, 10:20] != 7).all()


@DTYPES
def test_component_without_curvature_is_left_as_it_is(dtype, atol, rng):
    normal, H = normal_of(rng, 30, 4, dtype)
    keep = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=dtype)
    flat = Normal(normal.VtW * keep, normal.WtW * keep * keep[:, None])
    found = run(flat, H, 3)
    assert torch.equal(found[:, 1], H[:, 1].clamp(min=0))
    torch.testing.assert_close(found, swept(flat, H, 3), rtol=0, atol=atol)


# Leaps


def lowrank(V: Tensor) -> LowRank:
    U, S, Zt = torch.linalg.svd(V, full_matrices=False)
    return LowRank(U, Zt.mT * S, torch.zeros((), dtype=V.dtype))


STORES = {"dense": Dense, "Fortran": lambda V: Dense(V.mT.contiguous().mT), "low rank": lowrank}


def draw_problem(rng: torch.Generator, V: Matrix | None = None) -> tuple[Problem, Factors]:
    V = V or Dense(draw(rng, 30, 20).pow(2))
    m, n = V.shape[-2:]
    return Problem(V, 4), Factors(draw(rng, m, 4), draw(rng, n, 4))


def assert_same(a: Resumable, b: Resumable, atol: float = 1e-9) -> None:
    pairs = [(a.factors, b.factors), (a.inner.factors, b.inner.factors), (a.memory, b.memory)]
    for x, y in (pair for xs, ys in pairs for pair in zip(xs, ys, strict=True)):
        torch.testing.assert_close(x, y, rtol=atol, atol=atol)
    torch.testing.assert_close(a.error, b.error, rtol=atol, atol=atol)
    assert a.plain == b.plain


@pytest.mark.parametrize("store", STORES.values(), ids=STORES.keys())
@pytest.mark.parametrize("solver", [HER(), HER(HALS(0.0), Extrapolation(0.9, 2.0, 1.3))], ids=str)
@torch.no_grad()
def test_leap_is_as_many_steps(solver, store, rng):
    problem, x0 = draw_problem(rng, store(draw(rng, 30, 20).pow(2)))
    states = list(islice(steps(problem, solver, x0), 41))
    assert any(state.plain for state in states[1:])  # there are restarts among them
    leapt, errors = solver.leap(problem, states[0], 40)
    expected = torch.stack([state.sq_error(problem) for state in states[1:]])
    torch.testing.assert_close(errors, expected, rtol=1e-9, atol=1e-9)
    assert_same(leapt, states[-1])


@torch.no_grad()
def test_leaps_go_on_from_each_other_and_from_steps(rng):
    solver, (problem, x0) = HER(), draw_problem(rng)
    whole, errors = solver.leap(problem, solver.init(problem, x0), 12)
    state = solver.step(problem, solver.init(problem, x0))
    for n_iter in (1, 4, 6):
        state, some = solver.leap(problem, state, n_iter)
        assert len(some) == n_iter
    torch.testing.assert_close(some, errors[-6:], rtol=1e-9, atol=1e-9)
    assert_same(state, whole)


@torch.no_grad()
def test_steps_go_on_from_leaps(rng):
    solver, (problem, x0) = HER(), draw_problem(rng)
    leapt, _ = solver.leap(problem, solver.init(problem, x0), 7)
    assert isinstance(leapt, Leapt)
    *_, expected = islice(steps(problem, solver, x0), 9)
    assert_same(solver.step(problem, leapt), expected)
    assert_same(solver.adopt(problem, leapt, x0), solver.init(problem, x0))


@torch.no_grad()
def test_leap_is_on_the_problem_it_is_given(rng):
    solver, (problem, x0) = HER(), draw_problem(rng)
    other = Problem(Dense(draw(rng, 30, 20)), 4)
    state, _ = solver.leap(problem, solver.init(problem, x0), 5)
    leapt, _ = solver.leap(other, state, 1)
    assert_same(leapt, solver.step(other, state))


@torch.no_grad()
def test_leap_in_single_precision_is_nearly_that_in_double(rng):
    solver, (problem, x0) = HER(), draw_problem(rng)
    single = Problem(problem.V.to(torch.float32), 4)
    y0 = Factors(*(F.float() for F in x0))
    expected, _ = solver.leap(problem, solver.init(problem, x0), 20)
    found, _ = solver.leap(single, solver.init(single, y0), 20)
    assert found.factors.W.dtype == torch.float32
    torch.testing.assert_close(found.factors.W.double(), expected.factors.W, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_leap_leaves_its_inputs_alone(rng):
    solver, (problem, x0) = HER(), draw_problem(rng)
    state, _ = solver.leap(problem, solver.init(problem, x0), 3)
    values = [*state.factors, *state.inner.factors, *state.memory, state.error, state.plain]
    before = [value.clone() for value in values]
    solver.leap(problem, state, 5)
    assert all(torch.equal(a, b) for a, b in zip(values, before, strict=True))


@torch.no_grad()
def test_leap_ends_where_the_error_has_to_be_computed_from_the_entries(rng):
    solver, W, H = HER(), draw(rng, 12, 2), draw(rng, 10, 2)
    problem = Problem(Dense(W @ H.mT), 2)
    x0 = Factors(draw(rng, 12, 2), draw(rng, 10, 2))
    state, errors = solver.leap(problem, solver.init(problem, x0), 5000)
    assert 0 < len(errors) < 5000
    assert (errors >= 0).all()
    again, none = solver.leap(problem, state, 10)
    assert len(none) == 0
    assert_same(again, state)


def no_leap(problem: Problem, x0: Factors) -> bool:
    solver = HER()
    state = solver.init(problem, x0)
    same, errors = solver.leap(problem, state, 5)
    return same is state and len(errors) == 0


@torch.no_grad()
def test_there_is_no_leap_for_stacks_for_sparse_or_for_large_matrices(rng, monkeypatch):
    problem, x0 = draw_problem(rng)
    assert not no_leap(problem, x0)
    stack = Dense(draw(rng, 2, 30, 20))
    assert no_leap(Problem(stack, 4), Factors(*(F.expand(2, -1, -1) for F in x0)))
    (_, entries), *_ = problem.V.blocks(None)
    sparse = as_matrix(entries.to_sparse())
    assert isinstance(sparse, Sparse)
    assert no_leap(Problem(sparse, 4), x0)
    assert no_leap(*draw_problem(rng, Dense(torch.ones(2000, 1000).double())))


@torch.no_grad()
def test_there_is_no_leap_without_numba(rng, monkeypatch):
    problem, x0 = draw_problem(rng)
    monkeypatch.setattr("factormer.kernels.compiled", lambda *_: None)
    assert no_leap(problem, x0)


def test_no_loop_closes_over_another():
    """Or every process would compile it again (see `kernels.compile`)."""
    found = []
    for module in (loops, kernels.any_rank(), kernels.restarting()):
        members = {**vars(module), "whole": loops.extrapolated()}
        for name, member in members.items():
            if isinstance(member, Dispatcher):
                found.append(name)
                cells = member.py_func.__closure__ or ()
                assert not any(isinstance(cell.cell_contents, Dispatcher) for cell in cells), name
    assert len(found) > 5


def returned(kind: types.Type) -> list[types.Type]:
    """A type and the types in it."""
    return [kind, *(part for inner in getattr(kind, "types", ()) for part in returned(inner))]


def test_compiled_loops_return_no_named_tuple():
    """To make one runs Python, where a signal handler may raise, which crashes the process."""
    for signature in loops.extrapolated().nopython_signatures:
        assert not any(isinstance(t, types.BaseNamedTuple) for t in returned(signature.return_type))
