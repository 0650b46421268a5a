"""Residuals: every way to sum them agrees with V − W Hᵀ written out."""

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer.app.runs.residuals import SIDE, residuals
from factormer.problem.losses import Beta


def literal(V, W, H, known):
    """Root mean squares by rows and columns, and in all, over what is known."""
    R = np.where(known, V - W @ H.T, np.nan)
    rms = [np.sqrt(np.nanmean(R**2, axis=axis)) for axis in (1, 0, None)]
    return rms, np.where(known, V, np.nan), np.where(known, W @ H.T, np.nan)


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    V = rng.random((23, 17)) * (rng.random((23, 17)) < 0.4)
    return V, rng.random((23, 3)), rng.random((17, 3)), rng.random((23, 17)) < 0.8


def check(found, V, W, H, known):
    (rows, columns, rmse), values, fit = literal(V, W, H, known)
    np.testing.assert_allclose(found.rows, rows)
    np.testing.assert_allclose(found.columns, columns)
    assert found.rmse == pytest.approx(rmse)
    assert found.known == known.sum()
    assert found.rms == pytest.approx(np.sqrt(np.nansum(values**2) / known.sum()))
    assert found.relative == pytest.approx(found.rmse / found.rms)
    np.testing.assert_allclose(found.V_blocks, values, atol=1e-12)  # small enough for a block each
    np.testing.assert_allclose(found.fit_blocks, fit)


def test_dense(case):
    V, W, H, _ = case
    check(residuals(V, W, H), V, W, H, np.ones_like(V, dtype=bool))


@pytest.mark.parametrize("as_sparse", [False, True])
def test_dense_with_a_mask_and_nan(case, as_sparse):
    V, W, H, known = case
    holes = V.copy()
    holes[2, 3] = holes[20, 0] = np.nan
    mask = scipy.sparse.csr_array(known * 1.0) if as_sparse else known
    check(residuals(holes, W, H, mask), V, W, H, known & np.isfinite(holes))


def test_sparse(case):
    V, W, H, _ = case
    check(residuals(scipy.sparse.csr_array(V), W, H), V, W, H, np.ones_like(V, dtype=bool))


def test_sparse_with_a_mask(case):
    V, W, H, known = case
    mask = scipy.sparse.csr_array(known * 1.0)
    check(residuals(scipy.sparse.csr_array(V), W, H, mask), V, W, H, known)


@pytest.mark.parametrize("beta", [2.0, 1.0, 1.5])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_means_are_weighted_where_entries_count_differently(case, beta, as_sparse):
    V, W, H, known = case
    loss, weights = Beta(beta), known * np.random.default_rng(1).random(V.shape)
    Y, constant = W @ H.T, np.full(V.shape, np.average(V, weights=weights))
    D, worst = (loss(*map(torch.from_numpy, (V, y))).numpy() for y in (Y, constant))
    form = scipy.sparse.csr_array if as_sparse else np.asarray
    found = residuals(form(V), W, H, form(weights), loss)
    assert found.rmse == pytest.approx(np.sqrt(np.average((V - Y) ** 2, weights=weights)))
    assert (found.known, found.weight) == (known.sum(), pytest.approx(weights[known].mean()))
    rows = np.average(D, axis=1, weights=weights)
    np.testing.assert_allclose(found.rows, np.sqrt(2 * rows) if beta == 2 else rows)
    if beta != 2:
        assert found.divergence == pytest.approx(np.average(D, weights=weights))
        ratio = np.average(D, weights=weights) / np.average(worst, weights=weights)
        assert found.explained == pytest.approx(1 - ratio)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_blocks_are_means_over_even_parts(as_sparse):
    rng = np.random.default_rng(0)
    m, n = 2 * SIDE, 3
    V, W, H = rng.random((m, n)), rng.random((m, 2)), rng.random((n, 2))
    found = residuals(scipy.sparse.csr_array(V) if as_sparse else V, W, H)
    assert found.blocks.shape == (SIDE, n)
    R = (V - W @ H.T).reshape(SIDE, 2, n)
    np.testing.assert_allclose(found.blocks, np.sqrt((R**2).mean(axis=1)))
    np.testing.assert_allclose(found.V_blocks, V.reshape(SIDE, 2, n).mean(axis=1))


def test_rows_of_which_nothing_is_known_have_no_error(case):
    V, W, H, known = case
    known[4] = False
    assert np.isnan(residuals(V, W, H, known).rows[4])
    assert np.isfinite(residuals(V, W, H, known).rmse)


@pytest.mark.parametrize("beta", [1.0, 0.5, 1.5, 3.0])
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_other_losses_are_means_of_the_loss(case, beta, as_sparse, masked):
    V, W, H, known = case
    loss, known = Beta(beta), known if masked else np.ones_like(known)
    D = np.where(known, loss(torch.from_numpy(V), torch.from_numpy(W @ H.T)).numpy(), np.nan)
    constant = torch.full(V.shape, V[known].mean(), dtype=torch.float64)
    worst = loss(torch.from_numpy(V), constant).numpy()[known].mean()
    given = scipy.sparse.csr_array(V) if as_sparse else V
    mask = None if not masked else scipy.sparse.csr_array(known * 1.0) if as_sparse else known
    found = residuals(given, W, H, mask, loss)
    np.testing.assert_allclose(found.rows, np.nanmean(D, axis=1))
    np.testing.assert_allclose(found.columns, np.nanmean(D, axis=0))
    np.testing.assert_allclose(found.blocks, D, atol=1e-12)
    assert found.divergence == pytest.approx(np.nanmean(D))
    assert found.explained == pytest.approx(1 - np.nanmean(D) / worst)
    assert found.rmse == pytest.approx(residuals(given, W, H, mask).rmse)


def test_positive_data_under_itakura_saito_and_any_unit():
    rng = np.random.default_rng(0)
    V, W, H = rng.gamma(2.0, size=(9, 7)), rng.random((9, 2)), rng.random((7, 2))
    ratio = V / (W @ H.T)
    found = residuals(V, W, H, loss=Beta(0.0))
    assert found.divergence == pytest.approx(np.mean(ratio - np.log(ratio) - 1))
    large = residuals(1e300 * V, 1e300 * W, H, loss=Beta(0.0))
    assert large.divergence == pytest.approx(found.divergence)
    assert large.explained == pytest.approx(found.explained)
    assert residuals(1e300 * V, 1e300 * W, H, loss=Beta(3.0)).divergence == np.inf
