"""Random numbers that are a function of seed and place."""

import numpy as np
import pytest
import torch

from factormer.data import draws


def test_numbers_are_uniform_and_unlike_those_of_other_seeds():
    numbers = draws.uniform(7, (200, 100)).numpy()
    assert numbers.dtype == np.float32
    assert 0 <= numbers.min() < 1e-3
    assert 1 - 1e-3 < numbers.max() < 1
    assert numbers.mean() == pytest.approx(0.5, abs=0.01)
    assert numbers.var() == pytest.approx(1 / 12, abs=0.002)
    for other in (8, 6, draws.following(7)):
        more = draws.uniform(other, (200, 100)).numpy()
        assert abs(np.corrcoef(numbers.ravel(), more.ravel())[0, 1]) < 0.03


def test_a_number_depends_on_its_place_alone():
    long, short = draws.uniform(3, (50,)), draws.uniform(3, (5, 2))
    assert torch.equal(long[:10], short.ravel())


def test_seeds_of_any_size_give_the_same_everywhere():
    assert draws.following(0) == 0xE220A8397B1DCDAF >> 1  # the first number of SplitMix64
    for seed in (0, 2**63 - 1, 2**64 - 1):
        assert draws.uniform(seed, (3,)).isfinite().all()
        assert 0 <= draws.following(seed) < 2**63


def test_a_generator_moves_on():
    rng = torch.Generator().manual_seed(5)
    first = draws.advance(rng)
    assert first == 5
    assert draws.advance(rng) == draws.following(5)
