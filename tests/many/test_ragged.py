"""Matrices of many shapes in one tensor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from factormer import Ragged, factorize_many
from tests.many.test_factorize_many import problem

SHAPES = [(12, 9), (7, 15), (20, 6)]


def matrices() -> list[np.ndarray]:
    return [problem(m, n, 2, k) for k, (m, n) in enumerate(SHAPES)]


def test_it_is_the_list_of_its_matrices():
    given = matrices()
    packed = Ragged.of(given)
    assert len(packed) == 3
    for A, B in zip(packed, given, strict=True):
        np.testing.assert_array_equal(A.numpy(), B)
    np.testing.assert_array_equal(packed[-1].numpy(), given[-1])
    assert [tuple(A.shape) for A in packed[1:]] == SHAPES[1:]
    assert packed.to(torch.float32)[0].dtype == torch.float32
    assert "3 matrices" in repr(packed)


def test_it_is_factorized_like_that_list():
    given = matrices()
    packed = factorize_many(Ragged.of(given), [2, 3, 2])
    np.testing.assert_allclose(packed.rmse, factorize_many(given, [2, 3, 2]).rmse)
    assert isinstance(packed[0].W, torch.Tensor)


@pytest.mark.parametrize(
    ("entries", "shapes", "says"),
    [
        (torch.ones(5), [(2, 3)], "1 matrices of these shapes have 6 entries"),
        (torch.ones(2, 3), [(2, 3)], "must be in one row"),
        (torch.ones(6), [2, 3], "a row for each matrix"),
        (torch.ones(0), [(0, 3)], "at least 1"),
        (torch.ones(6), [(2.0, 3.0)], "whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused(entries, shapes, says):
    with pytest.raises(ValueError, match=says):
        Ragged(entries, shapes)


def test_none_is_refused():
    with pytest.raises(ValueError, match="empty"):
        Ragged.of([])


def test_a_stack_and_its_matrices_are_the_same_entries():
    stack = torch.rand(5, 4, 3)
    packed = Ragged.of_stack(stack)
    assert all(torch.equal(A, B) for A, B in zip(packed, stack, strict=True))
    assert packed.stacked(np.arange(5)).data_ptr() == stack.data_ptr()
    assert torch.equal(packed.stacked(np.array([1, 3])), stack[[1, 3]])
    assert not Ragged.is_stack(stack)  # on a GPU alone, where they are checked later
