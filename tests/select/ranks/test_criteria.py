"""Classical rules: each as it stands in the literature, on numbers small enough to check."""

import math

import numpy as np
import torch

from factormer.data import Dense
from factormer.select.ranks.criteria import bic, criteria, elbow, most_stable
from factormer.select.ranks.curves import curves


def test_bic_is_the_misfit_and_the_price_of_parameters():
    errors, ranks = np.array([50.0, 20.0, 19.0]), [1, 2, 4]
    found = bic(errors, ranks, 10, 8)
    expected = [
        80 * math.log(e / 80) + k * 18 * math.log(80) for e, k in zip(errors, ranks, strict=True)
    ]
    np.testing.assert_allclose(found.values, expected)
    assert found.rank == ranks[int(np.argmin(expected))]
    counted = bic(errors, ranks, 10, 8, counts=True)
    np.testing.assert_allclose(counted.values, errors + np.array(ranks) * 18 * math.log(80))


def test_elbow_is_where_the_error_stops_falling():
    assert elbow(np.exp([0.0, -1.0, -2.0, -2.1, -2.2]), [1, 2, 3, 4, 5]).rank == 3
    assert elbow(np.exp([0.0, -2.0, -4.0, -4.1]), [1, 3, 5, 6]).rank == 5  # per component
    assert elbow(np.array([1.0, 0.5]), [2, 3]).rank == 2


def test_stability_takes_the_largest_rank_that_is_stable():
    assert most_stable(np.array([1.0, 0.9, 0.5, 0.85, 0.3]), [1, 2, 3, 4, 5]).rank == 4
    assert most_stable(np.array([0.1, 0.2]), [3, 4]).rank == 3


def test_rules_find_a_rank_that_is_easy_to_see():
    rng = np.random.default_rng(0)
    W, H = rng.gamma(0.3, size=(60, 3)), rng.gamma(0.3, size=(50, 3))
    V = np.maximum(W @ H.T + 0.02 * rng.normal(size=(60, 50)), 0)
    found = curves(Dense(torch.from_numpy(V)), range(1, 7))
    rules = criteria(found, range(1, 7), counts=False)
    assert all(len(rule.values) == 6 for rule in rules.values())
    for name in ("BIC", "description length", "singular value threshold", "elbow"):
        assert rules[name].rank == 3, name


def test_rules_for_counts_know_the_size_of_noise():
    rng = np.random.default_rng(1)
    W, H = rng.gamma(0.3, size=(70, 3)), rng.gamma(0.3, size=(60, 3))
    V = rng.poisson(200 * (W @ H.T)).astype(float)
    rules = criteria(curves(Dense(torch.from_numpy(V)), range(1, 7), counts=True), range(1, 7),
                     counts=True)  # fmt: skip
    for name in ("BIC", "description length", "singular value threshold"):
        assert rules[name].rank == 3, name
