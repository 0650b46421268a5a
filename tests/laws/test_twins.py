"""How V is stored changes nothing: sparse and factored data give what the dense entries give."""

from dataclasses import replace

import pytest
import scipy.sparse
import torch
from hypothesis import given

from factormer.accelerate.anyrank import AnyRank
from factormer.accelerate.her import HER
from factormer.accelerate.lookahead import Lookahead
from factormer.data import LowRank, Sparse
from factormer.problem.problem import Problem
from factormer.solvers.hals import HALS
from tests.laws.cases import (
    INITIALIZERS,
    SOLVERS,
    Case,
    assert_close,
    assume_no_exact_fit,
    each_initializer,
    generator,
    law,
    problems,
    run,
)
from tests.networks import random_any_rank

# HALS makes more sweeps the more a product costs; here it always makes as many.
THREE_SWEEPS = HALS(alpha=9.0, max_sweeps=3)
# So does Lookahead with iterations ahead; here it makes them always four at a time.
FOUR_AHEAD = Lookahead(THREE_SWEEPS, HER(THREE_SWEEPS), n_ahead=4, first=4)
TWINS = SOLVERS | {
    "hals": THREE_SWEEPS,
    "her": HER(THREE_SWEEPS),
    "ahead": FOUR_AHEAD,
    "Lookahead-AnyRank": replace(FOUR_AHEAD, resting=AnyRank(random_any_rank())),
}
each_twin = pytest.mark.parametrize("solver", TWINS.values(), ids=TWINS.keys())
# The signs of singular vectors are free, and Rotated depends on them.
SIGNLESS = [name for name in INITIALIZERS if name != "rotated"]


def sparse(case: Case) -> Case:
    V = Sparse.of(scipy.sparse.csr_array(case.entries.numpy()))
    return case._replace(problem=Problem(V, case.problem.rank))


def factored(case: Case) -> Case:
    """Return the matrix as U Zᵀ, with nothing lost."""
    U, S, Zt = torch.linalg.svd(case.entries, full_matrices=False)
    V = LowRank(U, Zt.mT * S, torch.zeros((), dtype=torch.float64))
    return case._replace(problem=Problem(V, case.problem.rank))


@each_twin
@law
@given(case=problems())
def test_sparse_matrix_is_solved_as_the_dense_one(solver, case):
    assume_no_exact_fit(solver, case)
    for x, y in zip(run(solver, sparse(case)), run(solver, case), strict=True):
        assert_close(x, y, rtol=1e-10, atol=1e-10)


@each_twin
@law
@given(case=problems())
def test_factored_matrix_is_solved_as_the_dense_one(solver, case):
    assume_no_exact_fit(solver, case)
    for x, y in zip(run(solver, factored(case)), run(solver, case), strict=True):
        assert_close(x, y, rtol=1e-8, atol=1e-8)


@each_initializer
@law
@given(case=problems())
def test_sparse_matrix_starts_as_the_dense_one(initializer, case):
    x, y = (initializer(c.problem, generator()) for c in (sparse(case), case))
    assert_close(x, y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SIGNLESS)
@law
@given(case=problems(min_size=3, zeros=False))
def test_factored_matrix_starts_as_the_dense_one(name, case):
    x, y = (INITIALIZERS[name](c.problem, generator()) for c in (factored(case), case))
    assert_close(x, y, rtol=1e-8, atol=1e-8)
