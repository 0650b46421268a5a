"""Order and scale of components: what they are, and that they change nothing else."""

import numpy as np
import pytest
import torch

from factormer.data.factors import Factors
from factormer.run.order import canonical, lengths


@pytest.fixture
def x(rng: torch.Generator) -> Factors:
    W, H = (torch.rand(n, 4, dtype=torch.float64, generator=rng) for n in (9, 7))
    return Factors(W * torch.tensor([1.0, 9.0, 0.0, 3.0]), H)


@pytest.mark.parametrize("scale", ["balanced", "sum", None])
@pytest.mark.parametrize("order", ["share", None])
def test_product_stays(x, order, scale):
    W, H = canonical(x, order, scale)
    torch.testing.assert_close(W @ H.mT, x.W @ x.H.mT)


def test_largest_share_comes_first(x):
    W, H = canonical(x, "share", None)
    sizes = W.norm(dim=0) * H.norm(dim=0)
    assert bool((sizes.diff() <= 0).all())
    assert torch.equal(canonical(x, None, None).W, x.W)


def test_components_are_balanced_or_sum_to_one(x):
    W, H = canonical(x, "share", "balanced")
    torch.testing.assert_close(W.norm(dim=0)[:3], H.norm(dim=0)[:3])
    torch.testing.assert_close(
        canonical(x, None, "sum").H.sum(dim=0), torch.ones(4, dtype=torch.float64)
    )


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e200])
def test_lengths_of_numbers_of_any_size(size):
    F = size * torch.tensor([[3.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
    np.testing.assert_allclose(lengths(F) / size, [5.0, 0.0])
