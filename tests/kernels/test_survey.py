"""Sums of rows in one compiled reading against their twin in torch."""

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import kernels
from factormer.data import parts


@pytest.fixture(params=[True, False], ids=["compiled", "torch"])
def surveyed(request, monkeypatch):
    """`parts.survey` of small blocks, compiled or not."""
    monkeypatch.setattr(parts, "_LARGE", 0 if request.param else 2**40)
    monkeypatch.setattr(parts, "_PIECE", 100)
    if request.param and kernels.surveying("sums", np.dtype(np.float32)) is None:
        pytest.skip("nothing can be compiled here")
    return parts.survey


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_are_those_of_float64(surveyed, dtype, rng):
    V = torch.rand(37, 23, generator=rng).to(dtype)
    expected = torch.stack([V.double().sum(dim=1), V.double().square().sum(dim=1)], 1)
    torch.testing.assert_close(surveyed(V, "V"), expected, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(
    ("bad", "words"), [(np.nan, "NaN or infinite"), (np.inf, "infinite"), (-1e-30, "below zero")]
)
def test_one_bad_entry_is_found(surveyed, bad, words, rng):
    V = torch.rand(37, 23, generator=rng)
    V[30, 22] = bad
    with pytest.raises(ValueError, match=f"block 3 .*1 entries .*{words}"):
        surveyed(V, "block 3")


def test_entries_whose_sum_overflows_are_no_error(surveyed):
    sums = surveyed(torch.full((2, 10), 1e308, dtype=torch.float64), "V")
    assert bool(sums.isinf().all())


@pytest.mark.parametrize(("entry", "square"), [(1e100, 1e200), (1e308, np.inf)])
def test_large_entries_of_sparse_blocks_are_no_error(surveyed, entry, square):
    sums = surveyed(scipy.sparse.csr_array(entry * np.eye(3, 4)), "V")
    torch.testing.assert_close(sums, torch.tensor([[entry, square]] * 3, dtype=torch.float64))
