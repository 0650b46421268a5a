"""What many problems are read as: the same as one by one, whatever they are."""

import numpy as np
import pytest
import torch

from factormer.data import Dense
from factormer.data.observations import observe
from factormer.many.reading import read

V = np.arange(12.0).reshape(3, 4)
FROZEN = V.copy()
FROZEN.flags.writeable = False
PLAIN = {
    "double": V,
    "single": V.astype(np.float32),
    "whole": V.astype(int),
    "zeros": np.zeros((3, 4)),
    "Fortran": np.asfortranarray(V),
    "strided": np.arange(24.0).reshape(3, 8)[:, ::2],
    "reversed": V[::-1],
    "reversed row": V[:1][::-1],
    "read-only": FROZEN,
    "half": V.astype(np.float16),
    "list": V.tolist(),
    "tensor": torch.from_numpy(V),
    "half beyond": np.full((2, 2), 1e300),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_problem_is_read_as_a_matrix_is(name):
    found, expected = read(PLAIN[name], 0, None, None), observe(PLAIN[name])
    assert isinstance(found, Dense)
    assert isinstance(expected, Dense)
    assert found.dtype == expected.dtype
    assert torch.equal(found.entries, expected.entries)


def test_an_array_as_it_should_be_is_not_copied():
    matrix = read(V, 0, None, None)
    assert isinstance(matrix, Dense)
    assert matrix.entries.data_ptr() == V.ctypes.data


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (-V, "problem 7: Negative values"),
        (np.where(V == 3, np.inf, V), "problem 7: .* infinite"),
        (np.full((2, 2), 1e-310), "problem 7: .* full precision"),
        (V[None], "problem 7 has shape"),
        (V[:0], "problem 7: .* shape"),
        (V[0], "problem 7: .* shape"),
        (V.astype(complex), "problem 7: .* real numbers"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_with_the_number(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        read(given, 7, None, None)


def test_nan_is_an_unknown_entry():
    gap = np.where(V == 3, np.nan, V)
    assert not isinstance(read(gap, 0, None, None), Dense)
