"""The networks that the tests here run over, and points to put into them."""

import pytest
import torch
from torch import Tensor

from factormer.data.factors import Factors
from factormer.nn.factormer import ModelConfig
from tests.networks import small_config

CONFIGS = {
    "initialization": small_config(),
    "acceleration": small_config(n_points=2),
    "one head": small_config(heads=1),
    "scaled by width": small_config(scale_by_width=True),
    "four pairs": small_config(n_pairs=4),
    "weights of their own": small_config(shared=False),
    "refining, weights of their own": small_config(variant="refining", shared=False),
    "refining": small_config(variant="refining"),
    "refining two points": small_config(variant="refining", n_points=2),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    """Uniform entries."""
    return torch.rand(*shape, dtype=torch.float64, generator=rng)


def draw_point(config: ModelConfig, m: int, n: int, rng: torch.Generator) -> Factors:
    """A feasible point, or points side by side, of the width that a network takes."""
    p = config.n_points * config.rank
    return Factors(draw(rng, m, p), draw(rng, n, p))


def assert_same(x: Factors, y: Factors) -> None:
    """Assert equality up to rounding."""
    torch.testing.assert_close(x.W, y.W, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(x.H, y.H, rtol=1e-10, atol=1e-10)
