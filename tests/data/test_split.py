"""Products of halves in bfloat16 beside those in float64."""

from __future__ import annotations

import pytest
import torch

from factormer.data import Dense
from factormer.data.split import Halves, Split


def matrix(m: int, n: int, seed: int) -> torch.Tensor:
    return torch.empty(m, n).exponential_(generator=torch.Generator().manual_seed(seed))


def test_halves_are_the_matrix_to_17_bits():
    A = matrix(50, 40, 0)
    high, low = Halves.of(A)
    assert float(((high.double() + low.double() - A.double()) / A.double()).abs().max()) < 2.0**-16


@pytest.mark.parametrize("k", [1, 5, 64, 70])
def test_products_are_nearly_those_of_float64(k):
    V, X, Y = matrix(300, 200, 1), matrix(200, k, 2), matrix(300, k, 3)
    split = Split(V, halves=Halves.of(V))
    for found, exact in (
        (split @ X, V.double() @ X.double()),
        (split.T @ Y, V.double().mT @ Y.double()),
        (split.normal(Y).VtW, V.double().mT @ Y.double()),
        (split.T.normal(X).VtW, V.double() @ X.double()),
    ):
        assert float(((found - exact) / exact).abs().max()) < 1e-5


def test_the_transpose_of_the_transpose_is_the_matrix():
    V = matrix(30, 20, 4)
    split = Split(V, halves=Halves.of(V))
    assert split.T.T is split
    assert split.T.shape == (20, 30)


def test_on_a_cpu_it_does_not_pay():
    V = Dense(matrix(3000, 2000, 5))
    assert Split.of(V) is V
