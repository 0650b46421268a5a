"""The start that the core rotates agrees with its twin, and serves every matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.core import reference
from tests.core.lanes import as_array, core, kinds, one, planted, run, under

START = {"max_iter": 0, "order": False, "scale": "none", "finish": "none"}


@pytest.fixture(params=core.isas(), autouse=True)
def isa(request):
    with under(request.param):
        yield request.param


@pytest.mark.parametrize("precision", ["float64", "mixed"])
@pytest.mark.parametrize(("m", "n", "r"), [(64, 48, 4), (48, 64, 5), (1600, 96, 6), (640, 1280, 3)])
def test_the_start_is_that_of_the_twin(m, n, r, precision):
    V = planted(m, n, r, noise=0.01)
    W, H = reference.rotated_start(V, r, 5)
    found = one(V, r, 5, start="rotated", precision=precision, **START)
    np.testing.assert_allclose(found.W @ found.H.T, W @ H.T, atol=2e-3 * V.max())


@pytest.mark.parametrize("kind", kinds())
def test_the_start_is_much_nearer_than_random_numbers(kind):
    V = kinds()[kind]
    far = one(V, 5, start="random", **START).error
    near = one(V, 5, start="rotated", **START).error
    assert near < 0.5 * far
    assert near < 0.5 * np.sqrt(np.mean(np.square(as_array(V))))


@pytest.mark.parametrize("kind", kinds())
def test_threads_and_neighbours_change_no_bit(kind):
    V, other = kinds()[kind], planted(20, 30, 3)
    alone = one(V, 5, 3, start="rotated", max_iter=5, threads=1).bits()
    starts = ["rotated", "random", "rotated"]
    listed = run([V, other], [0, 1, 0], [5, 3, 5], [3, 1, 3], starts=starts, max_iter=5, threads=2)
    assert {alone, listed[0].bits(), listed[2].bits()} == {alone}


@pytest.mark.parametrize("precision", ["float64", "mixed"])
@pytest.mark.parametrize("rank", [1, 2, 7, 40])
@pytest.mark.parametrize(
    "V",
    [
        np.zeros((5, 4)),
        np.ones((1, 1)),
        np.ones((40, 30)),
        np.eye(12),
        np.outer(np.arange(6.0), np.arange(5.0)),
        1e-170 * planted(20, 15, 3),
        1e150 * planted(20, 15, 3),
        planted(3, 400, 2),
        planted(20, 15, 3).astype(np.float32),
        sp.csr_array((5, 4)),
    ],
    ids=["zero", "1x1", "ones", "identity", "rank 1", "tiny", "huge", "wide", "float32", "empty"],
)
def test_odd_matrices_have_a_start(V, rank, precision):
    found = one(V, rank, start="rotated", precision=precision, max_iter=40)
    assert np.isfinite(found.W).all()
    assert np.isfinite(found.H).all()
    assert (found.W >= 0).all()
    assert (found.H >= 0).all()
    dense = as_array(V).astype(float)
    assert found.error <= np.sqrt(np.mean(np.square(dense / (dense.max() or 1)))) * dense.max()


def test_the_names_of_starts_are_checked():
    with pytest.raises(ValueError, match="rotated"):
        one(planted(6, 5, 2), 2, start="nndsvd")
