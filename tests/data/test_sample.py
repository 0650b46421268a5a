"""Rows drawn from data beyond memory."""

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer.data.outofcore import blocks_of
from factormer.data.sample import some_rows
from factormer.data.sources import Source


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_rows_are_those_of_v_each_once_in_one_pass(kind, rng):
    V = np.arange(1.0, 61.0)[:, None] * np.ones(5)
    rows, sparse = kind(V), kind is not np.asarray
    source = Source(lambda a, b: rows[a:b], V.shape, V.dtype, "list", float(V.size), sparse)
    B = blocks_of(source, 3000)
    drawn = some_rows(B, 100.0, rng)
    assert B.record.passes == 1
    ((_, found),) = drawn.blocks(None)
    first = found[:, 0].tolist()
    assert len(set(first)) == len(first) == 20
    torch.testing.assert_close(found, torch.from_numpy(V)[[int(k) - 1 for k in first]])
    assert some_rows(B, 1e9, rng).shape == V.shape
    assert some_rows(B, 1.0, rng).shape == (1, 5)
