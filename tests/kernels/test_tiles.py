"""Products in registers against numpy, at sizes that fill tiles and at those that do not."""

import itertools

import numpy as np
import pytest
from numba import types

from factormer.kernels import loops
from factormer.kernels.compile import array, jit, once
from factormer.kernels.loops import multiply_at

_MATRIX = array(types.float64)


def _multiply(address, A, a, B, out, o):
    multiply_at(address, (A, a, B, out, o))


@once
def multiply():
    signature = types.void(types.int64, _MATRIX, types.int64, _MATRIX, _MATRIX, types.int64)
    return jit(signature)(_multiply)


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 6, 7, 9, 12, 13])
def test_products_are_those_of_numpy_and_nothing_else_is_written(r):
    rng, product = np.random.default_rng(0), multiply()
    for k, n in itertools.product([1, 2, 9], [*range(1, 12), 16, 23, 24, 25, 31, 49, 100]):
        A, B, out = rng.normal(size=(r, k + 3)), rng.normal(size=(k, n)), np.full((r, n + 5), 7.0)
        product(loops.parts().multiply, A, 2, B, out, 4)
        np.testing.assert_allclose(out[:, 4 : 4 + n], A[:, 2 : 2 + k] @ B, rtol=0, atol=1e-12)
        assert (np.delete(out, np.s_[4 : 4 + n], axis=1) == 7).all()
