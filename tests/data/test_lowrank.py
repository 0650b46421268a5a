"""Compressed data: each operation against the product U Zᵀ, and what a sketch loses."""

import pytest
import scipy.sparse
import torch
from torch import Tensor

from factormer.data import Dense, LowRank, Sparse, sketch
from factormer.data.dense import turned_product
from factormer.data.factors import Factors
from tests.data.test_sparse import assert_is

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


def nothing() -> Tensor:
    return torch.zeros((), dtype=torch.float64)


@DTYPES
@pytest.mark.parametrize("p", [1, 3, 9])
def test_operations_are_those_of_the_product(p, dtype, rng):
    U, Z = draw(rng, 7, p).to(dtype), draw(rng, 5, p).to(dtype)
    V, entries = LowRank(U, Z, nothing()), U @ Z.mT
    assert_is(V, entries, rng)
    assert_is(V.T, entries.mT, rng)
    c = torch.tensor(0.3, dtype=dtype)
    assert_is(V.scaled(c), c * entries, rng)
    assert_is(V.T.scaled(c), c * entries.mT, rng)


@DTYPES
def test_other_precision_is_that_of_the_product(dtype, rng):
    U, Z = draw(rng, 7, 3), draw(rng, 5, 3)
    V = LowRank(U, Z, nothing()).to(dtype)
    assert_is(V, U.to(dtype) @ Z.to(dtype).mT, rng)


def test_what_was_lost_is_in_the_norm_and_in_the_error(rng):
    U, Z, lost = draw(rng, 7, 3), draw(rng, 5, 3), torch.tensor(2.0).double()
    whole, part = LowRank(U, Z, nothing()), LowRank(U, Z, lost)
    x = sketch(whole, 2, rng)
    torch.testing.assert_close(part.sq_norm(), whole.sq_norm() + lost)
    torch.testing.assert_close(part.T.sq_norm(), whole.sq_norm() + lost)
    for V, W in ((part, whole), (part.T, whole.T)):
        y = (x.U, x.Z) if V is part else (x.Z, x.U)
        torch.testing.assert_close(V.sq_error(Factors(*y)), W.sq_error(Factors(*y)) + lost)
    c = torch.tensor(3.0).double()
    torch.testing.assert_close(part.scaled(c).sq_norm(), 9 * part.sq_norm())


def test_work_is_less_than_that_of_the_entries(rng):
    V = LowRank(draw(rng, 700, 3), draw(rng, 500, 3), nothing())
    assert V.work() == V.T.work() == 3 * 1200


@DTYPES
@pytest.mark.parametrize("shape", [(40, 25), (25, 40)], ids=str)
@pytest.mark.parametrize("p", [3, 6, 100])
def test_sketch_of_a_matrix_of_low_rank_is_the_matrix(p, shape, dtype, rng):
    m, n = shape
    entries = (draw(rng, m, 3) @ draw(rng, 3, n)).to(dtype)
    V = sketch(Dense(entries), p, rng)
    assert V.U.shape == (m, min(p, m, n))
    atol = {torch.float32: 1e-4, torch.float64: 1e-10}[dtype]
    torch.testing.assert_close(V.U @ V.Z.mT, entries, rtol=0, atol=atol)
    torch.testing.assert_close(V.U.mT @ V.U, torch.eye(V.U.shape[1], dtype=dtype))
    assert V.lost <= atol * V.sq_norm()
    assert V.lost.dtype == torch.float64


@pytest.mark.parametrize("store", [Dense, lambda V: Sparse.of(scipy.sparse.csr_array(V.numpy()))])
def test_what_a_sketch_loses_is_its_error(store, rng):
    entries = draw(rng, 40, 25) * (draw(rng, 40, 25) > 0.5)
    V = sketch(store(entries), 6, rng)
    torch.testing.assert_close(V.lost, (V.U @ V.Z.mT - entries).square().sum())
    torch.testing.assert_close(V.sq_norm(), entries.square().sum())


def test_sketch_is_nearly_the_best_of_its_rank(rng):
    entries = draw(rng, 60, 40).pow(4)
    singular = torch.linalg.svdvals(entries)
    best = singular[14:].square().sum()
    assert best <= sketch(Dense(entries), 14, rng).lost <= 1.3 * best
    assert sketch(Dense(entries), 14, rng, n_power=6).lost <= 1.02 * best


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (1, 1)], ids=str)
def test_thin_matrix_is_its_own_sketch(shape, rng):
    entries = draw(rng, *shape)
    V = sketch(Dense(entries), 4, rng)
    torch.testing.assert_close(V.U @ V.Z.mT, entries)


def test_sketch_of_zeros_is_zero(rng):
    V = sketch(Dense(torch.zeros(7, 5)), 2, rng)
    assert V.U.isfinite().all()
    assert not (V.U @ V.Z.mT).any()
    assert V.lost == 0


@pytest.mark.parametrize("m", [1, 8192, 20_001])
def test_a_product_with_a_tall_transpose_is_summed_over_pieces(m, rng):
    A, X = torch.rand(m, 7, generator=rng).double(), torch.rand(m, 3, generator=rng).double()
    with torch.no_grad():
        torch.testing.assert_close(turned_product(A, X), A.mT @ X)
        torch.testing.assert_close(turned_product(A, X.mT.contiguous().mT), A.mT @ X)
