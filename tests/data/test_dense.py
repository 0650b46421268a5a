"""The data: each operation against the plain entries, one matrix and a stack."""

import pytest
import torch
from torch import Tensor

from factormer.data import Dense, Matrix, Observed, n_entries
from factormer.data.factors import Factors

BATCHES = pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


def draw_point(rng: torch.Generator, *batch: int) -> Factors:
    return Factors(draw(rng, *batch, 7, 2), draw(rng, *batch, 5, 2))


def test_dense_is_a_matrix(rng):
    V = Dense(draw(rng, 7, 5).float())
    assert isinstance(V, Matrix)
    assert (V.shape, V.dtype, V.device) == ((7, 5), torch.float32, torch.device("cpu"))


@BATCHES
def test_operations_are_those_of_the_entries(batch, rng):
    entries, x = draw(rng, *batch, 7, 5), draw_point(rng, *batch)
    V = Dense(entries)
    torch.testing.assert_close(V @ x.H, entries @ x.H)
    VtW, WtW = V.normal(x.W)
    torch.testing.assert_close(VtW, torch.einsum("...mn,...mr->...nr", entries, x.W))
    torch.testing.assert_close(WtW, torch.einsum("...mr,...ms->...rs", x.W, x.W))
    torch.testing.assert_close(V.total(), entries.flatten(-2).sum(-1))
    residual = x.W @ x.H.mT - entries
    torch.testing.assert_close(V.sq_error(x), residual.flatten(-2).square().sum(-1))


def test_error_is_the_same_with_and_without_gradients(rng):
    V, x = Dense(draw(rng, 7, 5)), draw_point(rng)
    with torch.no_grad():
        without = V.sq_error(x)
    torch.testing.assert_close(without, V.sq_error(x))


def test_error_in_blocks_is_the_error_of_the_whole(rng):
    """A matrix wide enough to be taken a few rows at a time."""
    m, n = 3, 2**21 + 1
    W, H = torch.ones(m, 1), torch.ones(n, 1)
    with torch.no_grad():
        error = Dense(torch.zeros(m, n)).sq_error(Factors(W, H))
    assert error == m * n


def test_numbers_of_a_matrix_in_blocks_are_those_of_the_whole(rng):
    entries, x = draw(rng, 500, 200), Factors(draw(rng, 500, 3), draw(rng, 200, 3))
    V = Dense(entries)
    with torch.no_grad():
        torch.testing.assert_close(V.total(), entries.sum())
        torch.testing.assert_close(V.sq_norm(), entries.square().sum())
        torch.testing.assert_close(V.sq_error(x), (x.W @ x.H.mT - entries).square().sum())


def test_error_keeps_its_digits_near_an_exact_fit(rng):
    """In float32 the Gram expansion would be all rounding here."""
    W, H = (100 + draw(rng, 40, 2)).float(), (100 + draw(rng, 30, 2)).float()
    V = W @ H.mT + 1  # an error of 1 in each entry, beside entries of 20 000
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(
                Dense(V).sq_error(Factors(W, H)), torch.tensor(1200.0), rtol=1e-2, atol=0
            )


def test_error_leaves_its_inputs_alone(rng):
    entries, x = draw(rng, 7, 5), draw_point(rng)
    copies = [t.clone() for t in (entries, *x)]
    with torch.no_grad():
        Dense(entries).sq_error(x)
    assert all(torch.equal(a, b) for a, b in zip((entries, *x), copies, strict=True))


@BATCHES
def test_transpose_swaps_rows_and_columns_with_their_masks(batch, rng):
    rows, cols = draw(rng, *batch, 7) > 0.3, draw(rng, *batch, 5) > 0.3
    V = Dense(draw(rng, *batch, 7, 5), rows, cols)
    assert V.T.shape == (*batch, 5, 7)
    assert torch.equal(V.T.entries, V.entries.mT)
    assert V.T.rows is cols
    assert V.T.cols is rows
    assert torch.equal(V.T.T.entries, V.entries)


@BATCHES
def test_scaling_multiplies_each_matrix_and_keeps_the_masks(batch, rng):
    rows, c = draw(rng, *batch, 7) > 0.3, draw(rng, *batch, 1).squeeze(-1)
    V = Dense(draw(rng, *batch, 7, 5), rows)
    assert torch.equal(V.scaled(c).entries, c[..., None, None] * V.entries)
    assert V.scaled(c).rows is rows


@BATCHES
@pytest.mark.parametrize("size", [None, 1, 3, 7, 100])
def test_blocks_cover_the_rows_in_order(batch, size, rng):
    V = Dense(draw(rng, *batch, 7, 5))
    blocks = list(V.blocks(size))
    assert all(block.shape[-2] <= (size or 7) for _, block in blocks)
    assert torch.equal(torch.cat([block for _, block in blocks], dim=-2), V.entries)
    for rows, block in blocks:
        assert torch.equal(V.entries[..., rows, :], block)


def test_number_of_entries_leaves_padding_out():
    rows = torch.tensor([[True, True, False], [True, False, False]])
    cols = torch.tensor([[True, True], [True, False]])
    V = torch.zeros(2, 3, 2)
    assert n_entries(Dense(V)).tolist() == [6, 6]
    assert n_entries(Dense(V, rows)).tolist() == [4, 2]
    assert n_entries(Dense(V, rows, cols)).tolist() == [4, 1]
    assert n_entries(Dense(V, rows, cols).T).tolist() == [4, 1]
    assert n_entries(Dense(V[0])).shape == ()


@pytest.mark.parametrize("shape", [(5, 4), (300, 200)], ids=["at once", "in blocks"])
@pytest.mark.parametrize("scale", [1e-25, 0.5, 1e25], ids=str)
def test_a_scaled_matrix_in_another_precision_is_scaled_first(scale, shape, rng):
    V = Dense(draw(rng, *shape) / scale)
    single = V.scaled(torch.tensor(scale, dtype=torch.float64)).to(torch.float32)
    torch.testing.assert_close(single.entries, (V.entries * scale).float())
    torch.testing.assert_close(single.sq_norm(), (V.entries * scale).square().sum())


def test_entries_are_not_made_before_they_are_wanted(rng):
    V = Dense(torch.rand(5, 4, dtype=torch.float64, generator=rng))
    other = V.scaled(torch.tensor(2.0, dtype=torch.float64)).to(torch.float32)
    assert (other.shape, other.dtype) == ((5, 4), torch.float32)
    _ = other.sq_norm()
    assert "entries" not in vars(other)


@pytest.mark.parametrize("shape", [(5, 4), (300, 200)], ids=["at once", "in blocks"])
def test_a_scaled_matrix_has_gradients(shape, rng):
    V = draw(rng, *shape).requires_grad_()
    entries = Dense(V).scaled(torch.tensor(2.0, dtype=V.dtype)).entries
    (slope,) = torch.autograd.grad(entries.sum(), V)
    assert torch.equal(slope, torch.full_like(V, 2.0))


@pytest.mark.parametrize("shape", [(4, 5), (200, 300)])
def test_total_is_a_number_where_the_precision_has_none(shape):
    V = torch.full(shape, 1e38)
    known = torch.ones(shape)
    known[0, 0] = 0
    count = shape[0] * shape[1]
    assert float(Dense(V).total()) == pytest.approx(count * 1e38, rel=1e-6)
    assert float(Observed(Dense(V), known).total()) == pytest.approx((count - 1) * 1e38, rel=1e-6)
