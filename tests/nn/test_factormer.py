"""The Factormer layer and the N-Factormer of the paper; laws of all networks: test_networks.py."""

import pytest
import torch

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.factormer import ModelConfig, NFactormer, by_pairs
from factormer.nn.refining import build
from tests.networks import random_network, small_config
from tests.nn.cases import assert_same, draw, draw_point


def test_last_layer_alone_skips_its_outer_norm():
    names = {name.rsplit(".", 1)[0] for name in NFactormer(small_config(n_pairs=3)).state_dict()}
    assert {name for name in names if "norm_output" in name} == {
        "layers.0.norm_output",
        "layers.1.norm_output",
    }
    names = NFactormer(small_config(shared=False)).state_dict()
    assert {name[:8] for name in names if "norm_output" in name} == {"layers.0", "layers.1"}


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


@pytest.mark.parametrize("variant", ["paper", "refining"])
def test_layers_of_a_pair_share_their_weights_or_have_their_own(variant):
    shared, own = (
        build(small_config(variant=variant, n_pairs=3, shared=shared)) for shared in (True, False)
    )
    assert (len(shared.layers), len(own.layers)) == (3, 6)
    assert all(H is W for H, W in by_pairs(shared.layers, shared.config))
    assert [layer for pair in by_pairs(own.layers, own.config) for layer in pair] == list(
        own.layers
    )


def test_layers_with_weights_of_their_own_can_equal_shared_ones(rng):
    config = small_config()
    shared, own = random_network(config), random_network(small_config(shared=False))
    for one, pair in zip(shared.layers, by_pairs(own.layers, own.config), strict=True):
        for layer in pair:
            layer.load_state_dict(one.state_dict())
    own.embed.load_state_dict(shared.embed.state_dict())
    own.extract.load_state_dict(shared.extract.state_dict())
    x, V = draw_point(config, 7, 5, rng), Dense(draw(rng, 7, 5))
    assert_same(own(x, V), shared(x, V))


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
