"""Weights that learn: clipped, averaged, put back; and the rate they learn at."""

import copy

import pytest
import torch

from factormer_lab.train.weights import Averaged, untrained, warm_cosine


def averaged(*, clip: float = 1.0, ema: float = 0.5) -> Averaged[torch.nn.Linear]:
    model = untrained(lambda: torch.nn.Linear(3, 2), seed=0)
    return Averaged(model, weight_decay=0.0, clip=clip, ema=ema)


def gradients(scale: float) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    return [scale * torch.randn(shape, generator=rng) for shape in ((2, 3), (2,))]


def test_the_seed_draws_the_weights_and_nothing_else():
    before = torch.get_rng_state()
    a, b = averaged().model, averaged().model
    assert torch.equal(a.weight, b.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_large_gradient_is_clipped_to_its_norm():
    ours = averaged(clip=0.1)
    ours.update(gradients(100.0), 1e-3)
    grads = [weight.grad for weight in ours.weights if weight.grad is not None]
    assert torch.nn.utils.get_total_norm(grads).item() == pytest.approx(0.1)


def test_a_gradient_that_is_not_finite_moves_nothing():
    ours = averaged()
    before = copy.deepcopy(ours.model.state_dict())
    broken = gradients(1.0)
    broken[0][0, 0] = torch.nan
    ours.update(broken, 1e-3)
    assert all(torch.equal(before[name], new) for name, new in ours.model.state_dict().items())


def test_the_average_follows_sooner_in_the_beginning():
    ours = averaged(ema=0.995)
    first = ours.model.weight.detach().clone()
    ours.update(gradients(1.0), 1e-2)
    moved = (ours.average.weight - first) / (ours.model.weight - first)
    torch.testing.assert_close(moved, torch.full_like(moved, 1 - 1 / 11), rtol=1e-3, atol=0)


def test_restored_weights_go_on_as_if_nothing_had_happened():
    ours, other = averaged(), averaged()
    ours.update(gradients(1.0), 1e-2)
    other.restore(copy.deepcopy(ours.state()))
    for each in (ours, other):
        each.learn(each.model(torch.ones(1, 3)).sum(), 1e-2)
    for a, b in zip(ours.average.parameters(), other.average.parameters(), strict=True):
        assert torch.equal(a, b)


def test_rates_warm_up_and_fall_to_a_share():
    rates = [warm_cosine(3.0, step, 100, warmup=2, least=0.02) for step in range(100)]
    assert rates[0] == pytest.approx(1.5)
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert 0.02 * 3 < rates[-1] < 0.03 * 3
    assert warm_cosine(3.0, 0, 100, warmup=0, least=0.02) == pytest.approx(3)
