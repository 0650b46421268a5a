"""What rounding does to V, it does to the start and the iterates: no more.

So they are the same on any processor, each of which rounds in its own way.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from factormer.accelerate.lookahead import Lookahead
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.starts import Initializer, Separable
from factormer.starts.merged import merge
from factormer.starts.nndsvd import nndsvd
from tests.laws.cases import (
    INITIALIZERS,
    Case,
    assert_close,
    assume_no_exact_fit,
    each_solver,
    generator,
    law,
    problems,
    run,
)

each_start = pytest.mark.parametrize("start", INITIALIZERS.values(), ids=INITIALIZERS.keys())
seeds = st.integers(0, 1000)


def rounded(case: Case, seed: int) -> Case:
    """Return the problem with each number off in its last digits; zeros stay."""
    rng = torch.Generator().manual_seed(seed)

    def off(F: torch.Tensor) -> torch.Tensor:
        return F * (1 + 4e-16 * torch.randn(F.shape, generator=rng, dtype=F.dtype))

    return Case(Problem(Dense(off(case.entries)), case.problem.rank), Factors(*map(off, case.x0)))


@each_start
@law
@given(case=problems(min_size=3), seed=seeds)
def test_a_start_is_that_of_the_rounded_problem(start, case, seed):
    x = start(case.problem, generator())
    y = start(rounded(case, seed).problem, generator())
    assert_close(y, x, atol=1e-5)


@each_solver
@law
@given(case=problems(), seed=seeds)
def test_iterates_are_those_of_the_rounded_problem(solver, case, seed):
    assume_no_exact_fit(solver, case)
    for x, y in zip(run(solver, case), run(solver, rounded(case, seed)), strict=True):
        if isinstance(solver, Lookahead):  # forty iterations ahead, which may come to an exact fit
            sizes = [case.problem.sq_error(z) for z in (x, y)]
            assert abs(sizes[0] - sizes[1]) <= 1e-3 * case.problem.V.sq_norm()
        else:
            assert_close(y, x)


@pytest.mark.parametrize(
    "start", [INITIALIZERS["nndsvda"], INITIALIZERS["nndsvd"]], ids=["filled", "plain"]
)
@pytest.mark.parametrize("seed", range(5))
def test_singular_vectors_of_rounding_alone_are_left_out(start: Initializer, seed):
    """V of rank 2 with a row of zeros, asked for three components."""
    rng = torch.Generator().manual_seed(seed)
    V = torch.rand(6, 2, generator=rng).double() @ torch.rand(2, 5, generator=rng).double()
    V[0] = 0
    x = start(Problem(Dense(V), 3), generator())
    y = start(Problem(Dense(V.flip(0)), 3), generator())
    assert_close(y, Factors(x.W.flip(0), x.H), atol=1e-6)


def test_a_residue_of_rounding_is_zero():
    U = torch.tensor([[0.8, 0.6], [0.6, -0.8], [1e-17, 3e-17]]).double()
    W, _ = nndsvd(U, torch.tensor([2.0, 1.0]).double(), U)
    assert W[2].tolist() == [0, 0]


def test_equal_parts_of_a_singular_pair_are_chosen_by_the_first_entry():
    half = torch.tensor([[0.5, 0.5], [0.5, -0.5], [0.5, 0.5], [0.5, -0.5]]).double()
    S = torch.tensor([2.0, 1.0]).double()
    turned = half * torch.tensor([1.0, -1.0]).double()
    assert_close(nndsvd(half, S, half), nndsvd(turned, S, turned))


def test_of_equal_pairs_the_first_is_merged(rng):
    w, h = (torch.rand(9, 1, generator=rng).double() for _ in range(2))
    sizes = torch.tensor([0.3, 0.7, 1.1, 0.9]).double()  # four components, all of them parallel
    for scale in (1.0, 0.1, 1 / 3):
        merged = merge(Factors(w * sizes * scale, h.expand(9, 4) / scale), 3)
        expected = merge(Factors(w * sizes, h.expand(9, 4)), 3)
        torch.testing.assert_close(merged.W @ merged.H.mT, expected.W @ expected.H.mT)
        shares, wanted = (torch.linalg.norm(x.W, dim=0) for x in (merged, expected))
        torch.testing.assert_close(shares, wanted)


def test_of_equal_rows_the_first_is_an_anchor(rng):
    V = torch.rand(6, 5, generator=rng).double()
    V = torch.cat([V, V.flip(0) / 3, V * 0.7])
    start = Separable()
    for scale in (1.0, 0.1, 1 / 3):
        x, y = (start(Problem(Dense(A), 4), generator()) for A in (V, V * scale))
        torch.testing.assert_close(y.H, x.H * scale)
