"""Sparse data: each operation against the dense entries, whatever is or is not stored."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from factormer.data import Matrix, Sparse
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix
from factormer.kernels.threads import threads

FORMATS = [scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_array]
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


def patchy(rng: torch.Generator) -> np.ndarray:
    V = draw(rng, 7, 5) * (draw(rng, 7, 5) > 0.6)
    V[[0, 3, 6]], V[:, [2, 4]] = 0, 0
    return V.numpy()


def single_entry(rng: torch.Generator) -> np.ndarray:
    V = np.zeros((7, 5))
    V[4, 3] = 2.5
    return V


ENTRIES: dict[str, Callable[[torch.Generator], np.ndarray]] = {
    "full": lambda rng: draw(rng, 7, 5).numpy(),
    "patchy": patchy,
    "single entry": single_entry,
    "nothing": lambda rng: np.zeros((7, 5)),
    "row": lambda rng: patchy(rng)[1:2],
    "column": lambda rng: patchy(rng)[:, :1],
}
each_matrix = pytest.mark.parametrize("entries_of", ENTRIES.values(), ids=ENTRIES.keys())


def assert_is(V: Matrix, entries: Tensor, rng: torch.Generator) -> None:
    """Every operation of V is that of the entries."""
    (m, n), tiny = entries.shape, torch.finfo(entries.dtype).eps
    x = Factors(*(draw(rng, size, 2).to(entries.dtype) for size in (m, n)))
    close: dict[str, Any] = {"rtol": 100 * tiny, "atol": 100 * tiny}
    assert isinstance(V, Matrix)
    assert (V.shape, V.dtype, V.device.type) == ((m, n), entries.dtype, "cpu")
    assert V.rows is None
    assert V.cols is None
    torch.testing.assert_close(V @ x.H, entries @ x.H, **close)
    VtW, WtW = V.normal(x.W)
    torch.testing.assert_close(VtW, entries.mT @ x.W, **close)
    torch.testing.assert_close(WtW, x.W.mT @ x.W, **close)
    torch.testing.assert_close(V.total().to(entries), entries.sum(), **close)
    torch.testing.assert_close(V.sq_norm(), entries.double().square().sum(), **close)
    error = (x.W @ x.H.mT - entries).double().square().sum()
    torch.testing.assert_close(V.sq_error(x).double(), error, **close)
    for size in (None, 1, 3, 100):
        blocks = list(V.blocks(size))
        torch.testing.assert_close(torch.cat([block for _, block in blocks]), entries, **close)
        for rows, block in blocks:
            assert len(block) <= (size or m)
            torch.testing.assert_close(block, entries[rows], **close)


@DTYPES
@each_matrix
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.__name__)
def test_operations_are_those_of_the_entries(form, entries_of, dtype, rng):
    array = entries_of(rng).astype(dtype)
    V, entries = as_matrix(form(array)), torch.from_numpy(array)
    assert isinstance(V, Sparse)
    assert_is(V, entries, rng)
    assert_is(V.T, entries.mT, rng)
    assert_is(V.T.T, entries, rng)
    c = torch.tensor(0.3, dtype=entries.dtype)
    assert_is(V.scaled(c), c * entries, rng)
    assert_is(V.scaled(c).T, c * entries.mT, rng)
    assert_is(V.T.scaled(c).scaled(c), c * c * entries.mT, rng)


@each_matrix
def test_other_precision_is_that_of_the_entries(entries_of, rng):
    entries = torch.from_numpy(entries_of(rng))
    V = Sparse.of(scipy.sparse.csr_array(entries.numpy())).scaled(torch.tensor(2.0).double())
    assert_is(V.to(torch.float32), (2 * entries).float(), rng)
    assert_is(V.T.to(torch.float32).to(torch.float64), (2 * entries.float().double()).mT, rng)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_sparse_tensors_are_taken(layout, rng):
    entries = torch.from_numpy(patchy(rng))
    assert_is(as_matrix(entries.to_sparse(layout=layout)), entries, rng)


def test_entries_stored_twice_are_added(rng):
    rows, cols, values = [0, 0, 2, 0], [1, 1, 3, 0], [1.0, 2.0, 5.0, 4.0]
    V = scipy.sparse.coo_array((values, (rows, cols)), (3, 4))
    twice = scipy.sparse.csr_array(
        (np.array([4.0, 1.0, 2.0, 5.0]), np.array([0, 1, 1, 3]), np.array([0, 3, 3, 4])), (3, 4)
    )
    expected = torch.tensor([[4.0, 3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 5]]).double()
    for given in (V, twice):
        assert_is(as_matrix(given), expected, rng)
    assert twice.nnz == 4


def test_zeros_that_are_stored_are_zeros(rng):
    V = scipy.sparse.csr_array((np.array([0.0, 3.0]), np.array([0, 2]), np.array([0, 1, 2])))
    assert_is(as_matrix(V), torch.tensor([[0.0, 0, 0], [0, 0, 3]]).double(), rng)


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int64, np.float64])
def test_data_are_left_as_they_are(kind, rng):
    V = scipy.sparse.csc_array((10 * patchy(rng)).astype(kind))
    before = V.copy()
    as_matrix(V).scaled(torch.tensor(2.0).double()).T.sq_norm()
    assert (before != V).nnz == 0
    assert V.dtype == kind


def test_work_is_the_number_of_stored_entries(rng):
    V = scipy.sparse.csr_array(patchy(rng))
    assert as_matrix(V).work() == as_matrix(V).T.work() == V.nnz


@torch.no_grad()
def test_product_over_several_threads_is_the_product(rng, two_threads):
    array = scipy.sparse.random_array((3000, 2000), density=0.05, rng=0, format="csr")
    V, X = as_matrix(array), draw(rng, 2000, 8)
    with threads():
        shared = V @ X
    np.testing.assert_allclose(shared, array @ X.numpy(), atol=1e-12)


@torch.no_grad()
def test_products_of_huge_entries_are_numbers_once_they_are_scaled():
    V = as_matrix(scipy.sparse.csr_array(np.full((9, 2), 8e37, np.float32)))
    X, c = torch.ones(9, 1), torch.tensor(1e-37)
    np.testing.assert_allclose(V.scaled(c).T @ X, np.full((2, 1), 72.0), rtol=1e-5)
