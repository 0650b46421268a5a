"""Compiled loops over stored entries against their twins in torch."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer.data import Observed
from factormer.data.factors import Factors
from factormer.data.intake import as_matrix
from factormer.problem.entrywise import EntryByEntry
from factormer.problem.losses import Beta


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("beta", [1.0, 1.5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_over_stored_entries_are_those_of_torch(index, dtype, rtol, weighted, beta, order):
    rng = np.random.default_rng(0)
    entries = rng.random((23, 17)) * (rng.random((23, 17)) < 0.2)
    V: Any = scipy.sparse.csr_array(entries.astype(dtype))
    V.indptr, V.indices = V.indptr.astype(index), V.indices.astype(index)
    data = as_matrix(V)
    weights = torch.from_numpy(rng.random(V.nnz).astype(dtype))
    loss = EntryByEntry(Observed(data, weights) if weighted else data, Beta(beta))
    drawn = (np.asarray(rng.random((k, 5)) + 0.1, dtype, order=order) for k in V.shape)
    x = Factors(*(torch.from_numpy(F) for F in drawn))
    slow = (loss.value(x), loss.gradient(x), *loss.parts(x))
    with torch.no_grad():
        fast = (loss.value(x), loss.gradient(x), *loss.parts(x))
    for one, other in zip(slow, fast, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol)


def test_an_empty_matrix_has_no_entries():
    data = as_matrix(scipy.sparse.csr_array((4, 3)))
    x = Factors(torch.ones(4, 2, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64))
    with torch.no_grad():
        assert float(EntryByEntry(data, Beta(1.0)).value(x)) == pytest.approx(24.0)
