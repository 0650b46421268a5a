"""Small networks of random weights, drawn without touching the global generator's state."""

from typing import TypeVar

import torch
from torch import nn

from factormer.nn.anyrank import AnyRankConfig, AnyRankNetwork
from factormer.nn.factormer import FactormerLayer, ModelConfig
from factormer.nn.refining import Network, build

M = TypeVar("M", bound=nn.Module)


def small_config(**changes: object) -> ModelConfig:
    """A network of rank 3 that is quick to build and run."""
    options = {"rank": 3, "width": 8, "heads": 2, "n_pairs": 2, "ffn_width": 12} | changes
    return ModelConfig(**options)  # pyright: ignore[reportArgumentType]


def random_network(config: ModelConfig, *, seed: int = 0) -> Network:
    """A network all of whose weights are random: biases, norms and zero starts too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _randomized(build(config))
    model.extract.weight.data *= 0.3
    model.extract.bias.data.abs_()  # so that the projection leaves something of every network
    return model


def random_layer(
    config: ModelConfig, *, last: bool = False, n_edges: int = 1, n_carried: int = 0, seed: int = 0
) -> FactormerLayer:
    """A Factormer all of whose weights are random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _randomized(FactormerLayer(config, last=last, n_edges=n_edges, n_carried=n_carried))


def random_any_rank(*, seed: int = 0, **sizes: int) -> AnyRankNetwork:
    """A small any-rank network all of whose weights are random, and which mixes moderately."""
    config = AnyRankConfig(**{"width": 8, "messages": 4} | sizes)  # pyright: ignore[reportArgumentType]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _randomized(AnyRankNetwork(config))
    model.extract.weight.data *= 0.1
    model.extract.bias.data *= 0.1
    return model.requires_grad_(False)


@torch.no_grad()
def _randomized(module: M) -> M:
    module = module.double()
    for parameter in module.parameters():
        parameter.normal_(std=0.5 if parameter.dim() > 1 else 1.0)
    return module
