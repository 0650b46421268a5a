"""The any-rank network: its laws, and that a fresh one adds nothing."""

from typing import Any

import pytest
import torch
from torch import Tensor

from factormer.nn.anyrank import AnyRankConfig, AnyRankNetwork, Pooled, Progress, gate
from tests.networks import random_any_rank


def draw(
    rng: torch.Generator, r: int = 5, n: int = 9
) -> tuple[list[list[Tensor]], tuple[Any, ...]]:
    """Moves of two factors, and what the network takes of them."""
    sides = [[torch.randn(n, r, generator=rng).double() for _ in range(6)] for _ in "WH"]
    for side in sides:
        side[0] = side[0].clamp(min=0)
    return sides, arguments(sides)


def arguments(sides: list[list[Tensor]]) -> tuple[Any, ...]:
    scalars = torch.tensor([0.7, 3.0, 12.0, 0.4], dtype=torch.float64)
    gram = torch.stack([side[0].mT @ side[0] for side in sides])
    pools = zip(*(pool(*side) for side in sides), strict=True)
    moves = Pooled(*(torch.stack(pair) for pair in pools))
    return moves, gram, Progress(*scalars.unbind())


def pool(X: Tensor, D: Tensor, P: Tensor, S: Tensor, T: Tensor, U: Tensor) -> tuple[Tensor, ...]:
    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim=0)

    products = {
        "XX": dot(X, X), "XD": dot(X, D), "DD": dot(D, D), "DP": dot(D, P), "PP": dot(P, P),
        "SD": dot(S, D), "SS": dot(S, S), "ST": dot(S, T), "SU": dot(S, U), "TT": dot(T, T),
        "TU": dot(T, U), "UU": dot(U, U),
    }  # fmt: skip
    return (*products.values(), (X <= 0).double().mean(dim=0))


def test_fresh_network_adds_nothing(rng):
    _, given = draw(rng)
    mixing = AnyRankNetwork(AnyRankConfig()).double()(*given)
    assert not any(amount.any() for amount in mixing)


def test_permuted_components_are_permuted_amounts(rng):
    sides, given = draw(rng)
    order = torch.randperm(5, generator=rng)
    model = random_any_rank()
    permuted = arguments([[F[:, order] for F in side] for side in sides])
    for plain, other in zip(model(*given), model(*permuted), strict=True):
        assert plain.any()
        torch.testing.assert_close(plain[:, order], other)


def test_scale_of_a_component_does_not_matter(rng):
    """Neither of the whole, nor w_c against h_c."""
    sides, given = draw(rng)
    model, scale = random_any_rank(), torch.rand(5, generator=rng).double() + 0.1
    scaled = arguments([[7e-3 * scale * F for F in sides[0]], [5e4 / scale * F for F in sides[1]]])
    for plain, other in zip(model(*given), model(*scaled), strict=True):
        torch.testing.assert_close(plain, other)


def test_batch_equals_its_members(rng):
    model, members = random_any_rank(), [draw(rng)[1] for _ in range(3)]
    together = model(*(_stack(parts) for parts in zip(*members, strict=True)))
    for k, given in enumerate(members):
        for whole, one in zip(together, model(*given), strict=True):
            torch.testing.assert_close(whole[k], one)


def _stack(parts: tuple[Any, ...]) -> Any:
    if isinstance(parts[0], Tensor):
        return torch.stack(parts)
    return type(parts[0])(*(torch.stack(values) for values in zip(*parts, strict=True)))


def test_network_in_single_precision_serves_both(rng):
    _, given = draw(rng)
    model = random_any_rank()
    expected, found = model(*given), model.float()(*given)
    for a, b in zip(expected, found, strict=True):
        assert b.dtype == torch.float64
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("r", [1, 2, 17])
def test_any_rank_is_served_and_zeros_do_no_harm(r, rng):
    sides, _ = draw(rng, r=r)
    for side in sides:
        side[0][:, 0] = 0
    sides[1] = [torch.zeros_like(F) for F in sides[1]]
    mixing = random_any_rank()(*arguments(sides))
    assert all(amount.isfinite().all() and amount.shape == (2, r) for amount in mixing)


def test_gate_rectifies():
    x = torch.tensor([-1e6, -1.0, 0.0, 1.0, 1e6])
    torch.testing.assert_close(
        gate(x), torch.tensor([-0.5, -0.25, 0.0, 0.75, 1e6]), rtol=1e-3, atol=1e-2
    )


@pytest.mark.parametrize("changes", [{"width": 0}, {"messages": 0}, {"n_layers": 0}, {"kind": "x"}])
def test_wrong_config_is_refused_with_a_sentence(changes):
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name} is .*; it must be"):
        AnyRankConfig(**changes)
