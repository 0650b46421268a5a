"""consensus: what the runs agree on, feasible, as good as a run, and the same for the same seed."""

import importlib
import itertools

import numpy as np
import pytest
import scipy.sparse
import torch

import factormer
from factormer import Status, consensus
from factormer.penalties import L1, L2, Fixed, Simplex
from factormer.select.match import assigned, units

selecting = importlib.import_module("factormer.select.consensus")  # the function has its name


def counts(m: int = 60, n: int = 30, r: int = 3, level: float = 20.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    W, H = rng.gamma(0.3, size=(m, r)), rng.gamma(0.3, size=(n, r))
    return rng.poisson(level * W @ H.T).astype(float), level * W, H


def test_planted_components_are_stable_and_found():
    V, _, H = counts()
    found = consensus(V, 3, n_runs=10)
    assert found.W.shape == (60, 3)
    assert found.H.shape == (30, 3)
    assert found.stability.min() > 0.99
    assert found.cophenetic > 0.99
    assert (found.W >= 0).all()
    assert (found.H >= 0).all()
    A, B = units(found.H), units(H)
    assert (A.T @ B[:, assigned(A, B)]).diagonal().min() > 0.97
    error = np.sqrt(np.mean((V - found.W @ found.H.T) ** 2))
    assert found.error == pytest.approx(error)
    assert found.error <= 1.01 * np.nanmin(found.errors)


def test_components_too_many_are_unstable():
    V, *_ = counts()
    found = consensus(V, 6, n_runs=12)
    assert found.stability.min() < 0.9


def test_the_same_seed_gives_the_same_and_components_come_by_share():
    V, *_ = counts()
    one, two = (consensus(V, 3, n_runs=6, random_state=4) for _ in range(2))
    np.testing.assert_array_equal(one.H, two.H)
    np.testing.assert_array_equal(one.matrix, two.matrix)
    assert (np.diff(one.shares) <= 1e-9).all()
    assert one.shares.sum() == pytest.approx(1)


def test_permuted_data_give_permuted_components():
    V, *_ = counts()
    rows, columns = (
        np.random.default_rng(2).permutation(60),
        np.random.default_rng(3).permutation(30),
    )
    one, two = consensus(V, 3, n_runs=8), consensus(V[rows][:, columns], 3, n_runs=8)
    np.testing.assert_allclose(two.H, one.H[columns], rtol=0.01, atol=1e-3 * one.H.max())
    np.testing.assert_allclose(two.stability, one.stability, atol=1e-3)


@pytest.mark.parametrize("loss", ["kullback-leibler", 1.5])
def test_other_losses_are_refitted_by_their_own(loss):
    V, *_ = counts(30, 15)
    found = consensus(V, 2, n_runs=2, loss=loss, max_iter=30)
    best = factormer.factorize(V, 2, loss=loss, max_iter=30, tol=0)
    assert found.error <= 1.02 * best.rmse
    assert (found.H >= 0).all()


def test_medoid_is_one_of_the_runs():
    V, *_ = counts()
    found = consensus(V, 3, n_runs=5, components="medoid", random_state=7)
    (run,) = factormer.factorize_many(V, [3], random_state=7 + found.medoid, init="random")
    assert found.kept[found.medoid]
    assert found.components == "medoid"
    assert found.error == pytest.approx(run.rmse, rel=1e-6)
    np.testing.assert_allclose(found.H, run.H, rtol=1e-4, atol=1e-6)


def test_gaps_weights_ratings_and_sparse_data():
    V, *_ = counts(30, 15)
    gaps = V.copy()
    gaps[3] = np.nan
    assert np.isfinite(consensus(gaps, 2, n_runs=3, max_iter=20).W).all()
    sparse, dense = (units(consensus(A, 2, n_runs=3).H) for A in (scipy.sparse.csr_array(V), V))
    assert (sparse * dense).sum(axis=0).min() > 0.999
    rated = consensus(scipy.sparse.csr_array(V), 2, n_runs=3, missing="zeros", max_iter=20)
    assert rated.H.shape == (15, 2)
    assert isinstance(consensus(torch.from_numpy(V), 2, n_runs=2).W, torch.Tensor)


def test_penalties_hold_for_what_is_returned():
    V, *_ = counts(30, 15)
    found = consensus(V, 2, n_runs=2, regularize_W=Simplex(), max_iter=5)
    np.testing.assert_allclose(found.W.sum(axis=1), 1, atol=1e-6)
    sparse = consensus(V, 2, n_runs=3, regularize_H=L1(1.0), regularize_W=L2(1.0))
    assert sparse.error <= 1.01 * np.nanmin(sparse.errors)


def test_known_components_keep_their_places():
    V, *_ = counts(30, 15)
    known = torch.rand(15, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    fixed = Fixed(known[:, 1:2], torch.tensor([False, True, False]))
    found = consensus(V, 3, n_runs=4, regularize_H=fixed, max_iter=20)
    np.testing.assert_allclose(found.H[:, 1], known[:, 1], rtol=1e-6)
    assert found.stability[1] > 0.99


@pytest.mark.parametrize("resample", ["poisson", "bootstrap"])
def test_resampled_runs_give_bands_around_the_consensus(resample):
    V, *_ = counts(level=50.0)
    found = consensus(V, 3, n_runs=20, resample=resample)
    bands, wide = found.bands(0.5), found.bands(0.95)
    assert bands.H_low.shape == found.H.shape
    assert bands.W_high.shape == found.W.shape
    assert (wide.H_low <= bands.H_low).all()
    assert (bands.H_high <= wide.H_high).all()
    large = 0.2 * found.H.max(axis=0) < found.H
    inside = (wide.H_low <= found.H) & (wide.H_high >= found.H)
    assert inside[large].mean() > 0.8
    assert (wide.H_high > wide.H_low)[large].all()


def test_large_data_have_a_matrix_of_some_samples(monkeypatch):
    monkeypatch.setattr(selecting, "_SAMPLES", 20)
    V, *_ = counts(50, 12)
    found = consensus(V, 2, n_runs=3)
    assert found.matrix.shape == (20, 20)
    assert len(np.unique(found.samples)) == 20
    assert found.W.shape == (50, 2)
    assert consensus(V, 2, n_runs=3, components="medoid").W.shape == (50, 2)


def test_table_and_picture():
    pandas = pytest.importorskip("pandas")
    V, *_ = counts(30, 15)
    found = consensus(V, 2, n_runs=3)
    table = found.table()
    assert isinstance(table, pandas.DataFrame)
    assert list(table) == ["component", "share", "stability", "cosine"]
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = found.plot(figure.subplots(1, 2))
    assert "3 of 3 runs" in axes[1].get_title()
    assert "cophenetic" in repr(found)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_it_says_the_error_of_the_loss_and_counts_runs_that_did_not_converge(loss):
    V, *_ = counts(30, 15)
    found = consensus(V, 2, n_runs=3, loss=loss, max_iter=1)
    assert found.unmet == found.kept.sum() > 0
    if loss == "frobenius":
        assert f"RMSE {found.error:.4g} (best run {found.errors.min():.4g})" in repr(found)
    else:
        mean, best = (error**2 / 2 for error in (found.error, found.errors.min()))
        told = f"Kullback–Leibler divergence of an entry {mean:.4g} (best run {best:.4g})"
        assert told in repr(found)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_runs": 1}, "n_runs is 1; it must be a whole number of at least 2"),
        ({"resample": "jackknife"}, "resample is 'jackknife'"),
        ({"components": "mean"}, "components is 'mean'"),
        ({"symmetric": True}, "leave symmetric out"),
    ],
)
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        consensus(np.ones((5, 5)), 2, **options)


def test_data_that_cannot_be_compared_are_refused_and_odd_ones_answered():
    with pytest.raises(ValueError, match="no entry above 0"):
        consensus(np.zeros((4, 5)), 2)
    with pytest.raises(ValueError, match="one matrix"):
        consensus(np.ones((2, 4, 5)), 2)
    with pytest.raises(ValueError, match="resample"):
        consensus(counts()[0], 2, n_runs=3).bands()
    for V, rank in ((np.ones((6, 5)), 2), (np.ones((6, 5)), 8), (np.ones((1, 1)), 1)):
        found = consensus(V, rank, n_runs=3)
        assert np.isfinite(found.stability).all()
        np.testing.assert_allclose(found.W @ found.H.T, V, atol=0.1)


def only_three(monkeypatch, then=None):
    """Let three runs end, and no more: then comes what `then` raises."""
    whole = selecting.factorize_many

    def some(*args, **options):
        yield from itertools.islice(whole(*args, **options), 3)
        if then is not None:
            raise then

    monkeypatch.setattr(selecting, "factorize_many", some)


def test_time_limit_returns_what_is_done_or_says_that_nothing_is(monkeypatch):
    V, *_ = counts()
    with pytest.raises(TimeoutError, match="allow more time"):
        consensus(V, 3, time_limit=1e-9)
    only_three(monkeypatch)
    found = consensus(V, 3, n_runs=100, time_limit=1000)
    assert found.status is Status.TIME_LIMIT
    assert found.kept.sum() == 3


def test_ctrl_c_returns_what_is_done(monkeypatch):
    V, *_ = counts()
    only_three(monkeypatch, KeyboardInterrupt())
    found = consensus(V, 3, n_runs=100)
    assert found.status is Status.INTERRUPTED
    assert found.kept.sum() == 3
