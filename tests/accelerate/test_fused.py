"""Iterations in few kernels, and looking ahead, on a GPU: as their twins in torch."""

from typing import Any

import pytest
import torch

from factormer.accelerate.base import Restarted
from factormer.accelerate.cuda_graph import map_tensors, tensors
from factormer.accelerate.fused import Fused
from factormer.data import Dense, LowRank
from factormer.data.factors import Factors
from factormer.data.split import Halves, Split
from factormer.problem.problem import Problem
from factormer.run.registry import solver_kind
from factormer.solvers.hals import hals_nnls, sweep
from factormer.solvers.loop import loop
from tests.test_gpu import data

pytestmark = pytest.mark.gpu


def recorded(V: Any, rank: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """A problem whose errors from products have digits, "her-admm" for it, and its first state."""
    problem = Problem(V, rank, resolved=True)
    solver: Any = solver_kind("her-admm", problem).make(problem)
    rng = torch.Generator().manual_seed(seed)
    x0 = Factors(*(torch.rand(k, rank, generator=rng).cuda() for k in V.shape))
    return problem, solver, solver.init(problem, x0)


@pytest.mark.parametrize("rank", [1, 3, 16, 20, 50, 64])
@pytest.mark.parametrize("is_split", [False, True])
@torch.no_grad()
def test_fused_iterations_are_their_twins(rank, is_split):
    """Each from the same state, as long as the error falls by more than rounding."""
    entries = data(700, 400, rank).float().cuda()
    V = Split(entries, halves=Halves.of(entries)) if is_split else Dense(entries)
    problem, solver, state = recorded(V, rank)
    for _ in range(8):
        own = map_tensors(lambda t: t.clone(memory_format=torch.contiguous_format), state)
        fused = Fused.of(solver.solver, solver.accelerator, problem, own)
        assert fused is not None
        held, before = fused(), state.error
        state = solver.step(problem, state)
        torch.cuda.synchronize()
        del held
        if not bool((state.error - before).abs() > 1e-3 * before):
            break
        for ours, theirs in zip(tensors(own), tensors(state), strict=True):
            torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_fused_iterations_keep_the_point_when_the_error_rises():
    problem, solver, state = recorded(Dense(data(700, 400, 5).float().cuda()), 5)
    state = solver.step(problem, solver.step(problem, state))
    state = state._replace(error=torch.zeros_like(state.error), plain=torch.zeros_like(state.plain))
    own = map_tensors(torch.clone, state)
    fused = Fused.of(solver.solver, solver.accelerator, problem, own)
    assert fused is not None
    held, expected = fused(), solver.step(problem, state)
    torch.cuda.synchronize()
    del held
    assert bool(own.plain)
    for ours, theirs in zip(tensors(own), tensors(expected), strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [1, 3, 16, 50, 128])
@torch.no_grad()
def test_fused_sweeps_are_their_twin(rank, dtype):
    W, V = (torch.rand(300, k).to("cuda", dtype) for k in (rank, 200))
    W[:, rank // 2] *= 0 if rank > 1 else 1
    H = torch.rand(200, rank).to(W) - 0.2
    normal, twin = Dense(V).normal(W), H.clamp(min=0)
    for _ in range(4):
        twin = sweep(normal, twin)
    found = hals_nnls(normal, H, n_sweeps=torch.tensor(4))
    rel = 1e-3 if dtype == torch.float32 else 1e-9
    torch.testing.assert_close(found, twin, rtol=rel, atol=rel)


def test_fused_iterations_are_not_for_stacks_or_float64():
    for V in (data().cuda(), torch.stack([data().float()] * 2).cuda()):
        problem = Problem(Dense(V), 5, resolved=True)
        solver: Any = solver_kind("her-admm", problem).make(problem)
        x0 = Factors(*(torch.rand(*V.shape[:-2], k, 5).to(V) for k in V.shape[-2:]))
        state = solver.init(problem, x0)
        assert Fused.of(solver.solver, solver.accelerator, problem, state) is None


@torch.no_grad()
def test_looking_ahead_descends_and_reads_v_less_often():
    problem = Problem(Dense(data(900, 700, 8).float().cuda()), 8)
    rng = torch.Generator().manual_seed(0)
    x0 = Factors(*(torch.rand(k, 8, generator=rng).cuda() for k in (900, 700)))
    found = {}
    for name, limit in (("her-admm", 60), ("ahead", 25)):
        solver = solver_kind(name, problem).make(problem)
        looks = list(loop(problem, solver, x0, limit=limit))
        found[name] = torch.cat([look.errors for look in looks[1:]]).cpu()
        assert all(bool((F >= 0).all()) and bool(F.isfinite().all()) for F in looks[-1].factors)
        assert bool((found[name].diff() <= 1e-6 * found[name][:-1]).all())
    assert found["ahead"][-1] <= 1.01 * found["her-admm"][-1]


@torch.no_grad()
def test_matrices_of_low_rank_share_a_graph():
    solver: Any = solver_kind("her-admm", Problem(Dense(data().cuda()), 5)).make(None)  # pyright: ignore
    rng = torch.Generator().manual_seed(0)
    for width in (8, 10, 10):
        U, Z = (torch.rand(k, width, generator=rng).cuda() for k in (60, 40))
        problem = Problem(LowRank(U, Z, torch.zeros((), dtype=torch.float64).cuda()), 5)
        x0 = Factors(*(torch.rand(k, 5, generator=rng).cuda() for k in (60, 40)))
        *_, look = loop(problem, solver, x0, limit=10, at_most=10)
        alone: Any = solver_kind("her-admm", problem).make(problem)
        *_, other = loop(problem, Restarted(alone.solver, alone.accelerator), x0, limit=10)
        error = float(problem.V.sq_error(look.factors))
        assert error == pytest.approx(float(problem.V.sq_error(other.factors)), rel=1e-2)
    assert len(solver._stands) == 1
