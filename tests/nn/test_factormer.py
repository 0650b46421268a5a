"""The Factormer layer and the N-Factormer of the paper; laws of all networks: test_networks.py."""

import pytest
import torch

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.factormer import ModelConfig, NFactormer
from tests.networks import random_network, small_config
from tests.nn.cases import assert_same, draw, draw_point


def test_last_layer_alone_skips_its_outer_norm():
    names = {name.rsplit(".", 1)[0] for name in NFactormer(small_config(n_pairs=3)).state_dict()}
    assert {name for name in names if "norm_output" in name} == {
        "layers.0.norm_output",
        "layers.1.norm_output",
    }


def test_half_of_a_pair_is_the_same_layer_on_the_transposed_problem(rng):
    """H moves first, so the network is symmetric half by half, and not as a whole."""
    config = small_config(n_pairs=1)
    model, x, V = random_network(config), draw_point(config, 7, 5, rng), Dense(draw(rng, 7, 5))
    (layer,) = model.layers
    W, H = model.embed(x.W), model.embed(x.H)
    H_first, W_first = layer(W, H, [V.T]), layer(H, W, [V])
    W_second = layer(H_first, W, [V])
    expected = Factors(model.extract(W_second).relu(), model.extract(H_first).relu())
    assert_same(model(x, V), expected)
    swapped = model(x.swap(), V.T)  # a problem whose first move is the W-update
    torch.testing.assert_close(swapped.H, model.extract(W_first).relu())
    assert not torch.allclose(swapped.H, expected.W)


def test_defaults_are_the_networks_of_the_paper():
    config = ModelConfig()
    assert (config.rank, config.width, config.heads, config.n_pairs) == (10, 100, 4, 4)
    shapes = {name: tuple(p.shape) for name, p in NFactormer(config).named_parameters()}
    assert shapes["embed.weight"] == (100, 10)
    assert shapes["extract.weight"] == (10, 100)
    assert shapes["layers.3.attention.edge_key.weight"] == (100, 101)
    assert NFactormer(ModelConfig(n_points=2)).embed.weight.shape == (100, 20)  # [x, x̂]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("variant", "other", "variant"),  # the tests' type checker comes before our sentence
        ("n_points", 3, "n_points is 3; 1 initializes and 2 accelerates"),
        ("heads", 0, "heads is 0; it must be at least 1"),
    ],
)
def test_impossible_config_is_refused(field, value, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small_config(**{field: value})
