"""Points: swapping, scaling, choosing among and joining them."""

import pytest
import torch

from factormer.data.factors import Factors, concatenate, where


def draw_point(rng: torch.Generator, *batch: int) -> Factors:
    shapes = (*batch, 4, 2), (*batch, 3, 2)
    return Factors(*(torch.rand(s, generator=rng, dtype=torch.float64) for s in shapes))


def test_swapping_transposes_the_product(rng):
    x = draw_point(rng)
    y = x.swap()
    torch.testing.assert_close(y.W @ y.H.mT, (x.W @ x.H.mT).mT)
    assert torch.equal(y.swap().W, x.W)


@pytest.mark.parametrize("c", [0.0, 0.25, 9.0])
def test_scaling_scales_the_product_and_both_factors_alike(c, rng):
    x = draw_point(rng)
    y = x.scale(c)
    torch.testing.assert_close(y.W @ y.H.mT, c * x.W @ x.H.mT)
    torch.testing.assert_close(y.W, c**0.5 * x.W)


def test_each_member_of_a_stack_has_its_own_scale(rng):
    x, c = draw_point(rng, 5), torch.rand(5, generator=rng, dtype=torch.float64)
    y = x.scale(c)
    for k in range(5):
        torch.testing.assert_close(y.H[k], c[k].sqrt() * x.H[k])


def test_scaling_keeps_the_precision(rng):
    x = Factors(*(F.float() for F in draw_point(rng)))
    assert x.scale(0.1).W.dtype == torch.float32
    assert x.scale(torch.tensor(0.1, dtype=torch.float64)).W.dtype == torch.float32


def test_where_takes_whole_members(rng):
    a, b, mask = draw_point(rng, 3), draw_point(rng, 3), torch.tensor([True, False, True])
    x = where(mask, a, b)
    for F, A, B in zip(x, a, b, strict=True):
        assert torch.equal(F, torch.stack([A[0], B[1], A[2]]))


def test_where_does_not_let_the_rejected_point_through(rng):
    good = draw_point(rng)
    bad = Factors(torch.full_like(good.W, torch.nan), torch.full_like(good.H, torch.inf))
    x = where(torch.tensor(False), bad, good)
    assert torch.equal(x.W, good.W)
    assert torch.equal(x.H, good.H)


def test_concatenated_points_stand_side_by_side(rng):
    a, b = draw_point(rng), draw_point(rng)
    x = concatenate(a, b)
    assert x.W.shape == (4, 4)
    assert torch.equal(x.W[:, :2], a.W)
    assert torch.equal(x.H[:, 2:], b.H)


def test_mismatched_shapes_are_refused(rng):
    """The import hook of conftest.py is at work: a wrong shape fails at the call."""
    a, b = draw_point(rng, 3), draw_point(rng, 3)
    with pytest.raises(TypeError):
        where(torch.tensor([True, False]).double(), a, b)  # pyright: ignore[reportArgumentType]
