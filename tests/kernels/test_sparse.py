"""Products of sparse data with factors side by side, against scipy."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import factorize_many, kernels
from factormer.accelerate.lines import _SparseProducts
from factormer.data import Sparse
from factormer.data.intake import as_matrix

DTYPES = pytest.mark.parametrize(
    ("dtype", "atol"), [(np.float64, 1e-12), (np.float32, 1e-4)], ids=["double", "single"]
)


def sparse(m: int, n: int, dtype: type = np.float64) -> Any:
    rng = np.random.default_rng(0)
    return scipy.sparse.random_array((m, n), density=0.15, rng=rng, dtype=dtype, format="csr")


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (5, 40), (40, 7), (33, 50)], ids=str)
def test_products_are_those_of_scipy_and_nothing_else_is_written(shape, dtype, atol):
    (m, n), rng = shape, np.random.default_rng(1)
    V = sparse(m, n, dtype)
    matrix = as_matrix(V)
    assert isinstance(matrix, Sparse)
    products = _SparseProducts.of(matrix)
    assert products is not None
    for count in (1, 3, 8, 15, 16, 17, 31, 32, 33, 70):
        x = rng.normal(size=(count, m + n)).astype(dtype)
        out = np.full_like(x, 7)
        products(x, out, 0)
        np.testing.assert_allclose(out[:, m:], (V.T @ x[:, :m].T).T, rtol=0, atol=atol)
        assert (out[:, :m] == 7).all()
        products(x, out, 1)
        np.testing.assert_allclose(out[:, :m], (V @ x[:, m:].T).T, rtol=0, atol=atol)
