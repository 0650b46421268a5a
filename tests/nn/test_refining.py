"""The refining Factormer; laws of all networks: test_networks.py."""

import pytest
import torch

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.refining import build, unit_residual
from tests.networks import random_network, small_config
from tests.nn.cases import draw, draw_point


@pytest.mark.parametrize("n_points", [1, 2])
def test_untrained_network_is_the_identity_at_the_newest_point(n_points, rng):
    config = small_config(variant="refining", n_points=n_points)
    x = draw_point(config, 7, 5, rng)
    y = build(config).double()(x, Dense(draw(rng, 7, 5)))
    assert torch.equal(y.W, x.W[:, -config.rank :])
    assert torch.equal(y.H, x.H[:, -config.rank :])


def test_correction_vanishes_at_an_exact_fit(rng):
    config = small_config(variant="refining")
    model, x = random_network(config), draw_point(config, 7, 5, rng)
    y = model(x, Dense(x.W @ x.H.mT))
    torch.testing.assert_close(y.W, x.W, rtol=0, atol=1e-12)
    torch.testing.assert_close(y.H, x.H, rtol=0, atol=1e-12)


def test_unit_residual_has_unit_root_mean_square_on_real_entries(rng):
    rows, cols = torch.arange(6) < 4, torch.arange(5) < 3
    V = Dense(draw(rng, 6, 5) * rows[:, None] * cols, rows, cols)
    x = Factors(draw(rng, 6, 2) * rows[:, None], draw(rng, 5, 2) * cols[:, None])
    R, error = unit_residual(x, V)
    assert not R.entries[4:].any()
    assert not R.entries[:, 3:].any()
    torch.testing.assert_close(R.entries.square().sum() / 12, torch.ones_like(error))
    torch.testing.assert_close(error * R.entries, x.W @ x.H.mT - V.entries)


def test_unit_residual_of_an_exact_fit_is_zero_and_finite(rng):
    x = Factors(torch.ones(3, 1), torch.ones(2, 1))
    R, error = unit_residual(x, Dense(torch.ones(3, 2)))
    assert not R.entries.any()
    assert error.isfinite()
