"""The any-rank accelerator: extrapolation where it knows nothing, and what it keeps in mind."""

from itertools import islice

import pytest
import scipy.sparse
import torch

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data import Dense, Sparse
from factormer.data.factors import Factors
from factormer.nn.anyrank import AnyRankConfig, AnyRankNetwork
from factormer.nn.zoo import load_any_rank
from factormer.problem.problem import Problem
from factormer.solvers.ao_admm import TraceAOADMM
from factormer.solvers.hals import HALS
from tests.networks import random_any_rank
from tests.steps import steps

SOLVERS = [HALS(), TraceAOADMM(n_inner=10, tol=0.0, share=0.1)]
each_solver = pytest.mark.parametrize("solver", SOLVERS, ids=["hals", "admm"])


def draw(rng: torch.Generator, m: int = 12, n: int = 9, r: int = 4) -> tuple[Problem, Factors]:
    """A noisy matrix and a random point."""
    W, H = torch.rand(m, r, generator=rng).double(), torch.rand(n, r, generator=rng).double()
    V = W @ H.mT + 0.1 * torch.rand(m, n, generator=rng).double()
    return Problem(Dense(V), r), Factors(
        *(torch.rand(k, r, generator=rng).double() for k in (m, n))
    )


def states(solver, accelerator, case, n_iter=25):
    problem, x0 = case
    return list(islice(steps(problem, Restarted(solver, accelerator), x0), n_iter))


@each_solver
@torch.no_grad()
def test_fresh_network_is_extrapolation(solver, rng):
    case = draw(rng)
    fresh = AnyRank(AnyRankNetwork(AnyRankConfig()))
    plain = states(solver, Extrapolation(), case, n_iter=8)  # before rounding can tip a decision
    for a, b in zip(states(solver, fresh, case, n_iter=8), plain, strict=True):
        torch.testing.assert_close(a.factors, b.factors)
        torch.testing.assert_close(a.inner.factors, b.inner.factors)
        torch.testing.assert_close(a.memory.momentum.beta, b.memory.beta)


@torch.no_grad()
def test_point_that_the_solver_leaves_alone_stays(rng):
    problem, x = draw(rng)
    accelerator = AnyRank(random_any_rank())
    memory = accelerator.init(problem, x)
    for _ in range(3):
        proposed, memory = accelerator.propose(problem, memory, before=x, stepped=x)
        memory = accelerator.judged(memory, torch.tensor(False))
        assert torch.equal(proposed.W, x.W)
        assert torch.equal(proposed.H, x.H)


@each_solver
@torch.no_grad()
def test_scale_of_the_data_does_not_matter(solver, rng):
    problem, x0 = draw(rng)
    c = torch.tensor(1e4, dtype=torch.float64)
    scaled = Problem(problem.V.scaled(c), problem.rank), x0.scale(c)
    accelerator = AnyRank(random_any_rank())
    last, other = (states(solver, accelerator, k, 6)[-1] for k in ((problem, x0), scaled))
    torch.testing.assert_close(last.factors.scale(c), other.factors, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_permuted_components_stay_permuted(rng):
    problem, x0 = draw(rng)
    order = torch.tensor([2, 0, 3, 1])
    permuted = problem, Factors(x0.W[:, order], x0.H[:, order])
    accelerator = AnyRank(random_any_rank())  # ADMM treats components alike; HALS goes in turn
    a, b = (states(SOLVERS[1], accelerator, case, 8)[-1] for case in ((problem, x0), permuted))
    torch.testing.assert_close(a.factors.W[:, order], b.factors.W)
    torch.testing.assert_close(a.factors.H[:, order], b.factors.H)


@torch.no_grad()
def test_refused_proposal_leaves_the_moves_as_they_were(rng):
    problem, x0 = draw(rng)
    accelerator = AnyRank(random_any_rank())
    memory = accelerator.init(problem, x0)
    x1 = Factors(x0.W + 0.1, x0.H + 0.1)
    _, memory = accelerator.propose(problem, memory, before=x0, stepped=x1)
    _, after = accelerator.propose(problem, memory, before=x1, stepped=x1)
    for a, b in zip((*memory.W, *memory.H), (*after.W, *after.H), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(after.proposed.W, x1.W)


@torch.no_grad()
def test_repeated_refusals_bring_back_plain_momentum(rng):
    problem, x0 = draw(rng)
    accelerator = AnyRank(random_any_rank())
    memory = accelerator.init(problem, x0)
    x1 = Factors(x0.W + 0.1, x0.H.flip(0))

    def is_plain() -> bool:
        learned, _ = accelerator.propose(problem, memory, before=x0, stepped=x1)
        plain, _ = Extrapolation().propose(problem, memory.momentum, before=x0, stepped=x1)
        pairs = zip(learned, plain, strict=True)  # compiled and in torch: equal up to rounding
        return all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in pairs)

    assert not is_plain()
    for _ in range(3):
        memory = accelerator.judged(memory, torch.tensor(True))
    assert is_plain()
    for _ in range(10):
        memory = accelerator.judged(memory, torch.tensor(False))
    assert not is_plain()  # and is given another chance


@each_solver
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@torch.no_grad()
def test_shipped_network_serves_dense_and_sparse_in_both_precisions(solver, kind, dtype, rng):
    problem, x0 = draw(rng, 30, 20, 6)
    entries = problem.V.entries.to(dtype)  # pyright: ignore[reportAttributeAccessIssue]
    V = Dense(entries) if kind == "dense" else Sparse.of(scipy.sparse.csr_array(entries.numpy()))
    case = Problem(V, 6), Factors(*(F.to(dtype) for F in x0))
    found = states(solver, AnyRank(load_any_rank("any-rank")), case, 40)
    errors = torch.stack([case[0].sq_error(state.factors) for state in found])
    assert errors.isfinite().all()
    assert errors[-1] < errors[1]
    assert all((F >= 0).all() and F.dtype == dtype for F in found[-1].factors)


@torch.no_grad()
def test_shipped_network_needs_fewer_iterations_than_extrapolation(rng):
    counts = {"network": 0, "plain": 0}
    for _ in range(3):
        case = draw(rng, 40, 30, 6)
        network = states(SOLVERS[1], AnyRank(load_any_rank("any-rank")), case, 60)
        plain = states(SOLVERS[1], Extrapolation(), case, 60)
        target = 1.01 * min(network[-1].error, plain[-1].error)
        for name, found in (("network", network), ("plain", plain)):
            counts[name] += sum(bool(state.error > target) for state in found)
    assert counts["network"] < 0.9 * counts["plain"]
