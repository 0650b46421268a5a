"""Components are matched whatever their order, and outlying runs are found."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_samples

from factormer.select.connect import connected, tree_of
from factormer.select.match import assigned, clustered, units


def runs(k: int = 12, n: int = 30, r: int = 4, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    """Return equal components in every run, in another order, to another scale, and not quite."""
    rng = np.random.default_rng(seed)
    truth = rng.gamma(0.4, size=(n, r))
    each = [truth[:, rng.permutation(r)] * rng.uniform(0.5, 2, r) for _ in range(k)]
    return np.stack(each) * rng.lognormal(0, noise, size=(k, n, r))


def test_components_that_belong_together_are_matched():
    H = runs()
    found = clustered(H)
    assert found.kept.all()
    X = np.take_along_axis(units(H), found.columns[:, None, :], axis=2)
    cosines = np.einsum("knr,nr->kr", X, found.centres)
    assert cosines.min() > 0.98
    np.testing.assert_allclose(found.cosine, cosines.mean(axis=0))
    assert found.stability.min() > 0.9


def test_order_of_components_does_not_matter():
    H, rng = runs(), np.random.default_rng(1)
    shuffled = np.stack([run[:, rng.permutation(4)] for run in H])
    one, two = clustered(H), clustered(shuffled)
    places = assigned(one.centres, two.centres)
    np.testing.assert_allclose(two.centres[:, places], one.centres, atol=1e-12)
    np.testing.assert_allclose(two.stability[places], one.stability, atol=1e-12)
    assert (one.kept == two.kept).all()


def test_a_run_unlike_all_others_is_dropped():
    H = runs()
    H[3] = np.random.default_rng(5).gamma(0.3, size=H[3].shape)
    found = clustered(H)
    assert np.flatnonzero(~found.kept).tolist() == [3]
    assert found.medoid != 3


def test_two_equally_common_answers_are_both_kept():
    H = np.concatenate([runs(6), runs(6, seed=9)])
    found = clustered(H)
    assert found.kept.all()
    assert found.stability.max() < 0.9


def test_stability_is_the_silhouette():
    H = runs(noise=0.4)
    found = clustered(H)
    X = np.take_along_axis(units(H)[found.kept], found.columns[:, None, :], axis=2)
    flat = X.transpose(0, 2, 1).reshape(-1, X.shape[1])
    label = np.tile(np.arange(4), len(X))
    distances = cdist(flat, flat, "cosine")
    np.fill_diagonal(distances, 0)
    each = np.asarray(silhouette_samples(distances.clip(min=0), label, metric="precomputed"))
    expected = [each[label == c].mean() for c in range(4)]
    np.testing.assert_allclose(found.stability, expected, atol=1e-9)


def test_components_of_zeros_and_single_components_are_no_trouble():
    H = runs()
    H[:, :, 0] *= (np.arange(12) % 2 == 0)[:, None]
    found = clustered(H)
    assert np.isfinite(found.stability).all()
    one = clustered(runs(r=1, noise=0.01))
    assert one.stability[0] == pytest.approx(1, abs=1e-3)


def test_numbers_of_any_size():
    np.testing.assert_allclose(units(1e200 * runs()), units(runs()), rtol=1e-12)


def test_consensus_matrix_counts_the_runs_in_which_samples_go_together():
    label = np.array([[0, 0, 1, -1], [1, 1, 0, -1], [0, 1, 1, -1]])
    matrix = connected(label, 2)
    expected = [[1, 2 / 3, 0, 0], [2 / 3, 1, 1 / 3, 0], [0, 1 / 3, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(matrix, expected)


def test_tree_orders_samples_by_group():
    label = np.tile([0, 1, 2, 0, 1, 2, 0, 1, 2], (5, 1))
    tree = tree_of(connected(label, 3))
    assert tree.cophenetic == pytest.approx(1)
    ordered = label[0][tree.order]
    assert np.count_nonzero(np.diff(ordered)) == 2
    assert tree_of(np.ones((4, 4))).cophenetic == 1
