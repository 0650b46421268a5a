"""Residuals: every way to sum them agrees with V − W Hᵀ written out."""

import numpy as np
import pytest
import scipy.sparse

from factormer.app.runs.residuals import SIDE, residuals


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
