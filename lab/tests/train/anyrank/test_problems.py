"""Matrices of all kinds, with starts: sound numbers, of the shapes and ranks asked for."""

import pytest
import torch

from factormer_lab.train.anyrank.problems import (
    KINDS,
    STARTS,
    draw_bucket,
    draw_shape,
    leading_svd,
    matrices,
)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_of_a_kind_are_nonnegative_and_of_mean_square_one(kind, rng):
    V = matrices(kind, 5, 14, 11, 3, rng)
    assert V.shape == (5, 14, 11)
    assert (V >= 0).all()
    torch.testing.assert_close(V.square().mean(dim=(1, 2)), torch.ones(5))


def test_bucket_holds_every_kind_and_start(rng):
    bucket = draw_bucket((20, 15, 4), 6, rng)
    assert bucket.kinds.bincount().tolist() == [6] * len(KINDS)
    drawn = {STARTS[k] for k in bucket.starts.tolist()}
    assert drawn == set(STARTS)
    assert all((F >= 0).all() and F.isfinite().all() for F in bucket.x0)
    assert bucket.V.isfinite().all()
    assert bucket.x0.W.shape == (60, 20, 4)
    assert bucket.x0.H.shape == (60, 15, 4)


def test_same_seed_gives_the_same_bucket():
    a, b = (draw_bucket((12, 15, 3), 2, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(a.V, b.V)
    assert torch.equal(a.x0.W, b.x0.W)


def test_leading_svd_agrees_with_that_of_torch(rng):
    V = torch.rand(3, 12, 9, generator=rng)
    U, S, Z = leading_svd(V, 9, rng)
    torch.testing.assert_close(S, torch.linalg.svdvals(V.double()), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close((U * S[:, None]) @ Z.mT, V.double(), rtol=1e-4, atol=1e-4)


def test_shapes_leave_room_for_their_rank(rng):
    for number in range(30):
        m, n, r = draw_shape(number, (2, 64), 200, rng)
        assert min(m, n) >= 1.3 * r
        m, n, r = draw_shape(number, (32, 100), 200, rng)
        assert min(m, n) >= 1.3 * r
        assert 32 <= r <= 100
