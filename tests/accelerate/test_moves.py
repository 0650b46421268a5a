"""Passes over whole factors, compiled, against their twins in torch."""

import pytest
import torch

from factormer.accelerate import moves
from factormer.accelerate.moves import Moves, Track


def draw(rng: torch.Generator, dtype: torch.dtype, *, by_components: bool) -> Track:
    def factor() -> torch.Tensor:
        F = torch.randn(3, 40, generator=rng, dtype=torch.float64).to(dtype).mT
        return F if by_components else F.contiguous()

    X, before, y, *older = (factor() for _ in range(6))
    return Track(X.clamp(min=0), before, y, Moves(*older))


each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
each_order = pytest.mark.parametrize("by_components", [False, True], ids=["rows", "components"])


@each_dtype
@each_order
@torch.no_grad()
def test_products_are_those_of_the_twin(dtype, by_components, rng):
    track = draw(rng, dtype, by_components=by_components)
    torch.testing.assert_close(track.products(None), moves.products(track, None))


@each_dtype
@each_order
@torch.no_grad()
def test_proposals_are_those_of_the_twin(dtype, by_components, rng):
    track = draw(rng, dtype, by_components=by_components)
    amounts = torch.randn(3, 3, generator=rng, dtype=torch.float64).to(dtype)
    for moved in (torch.tensor(True), torch.tensor(False)):
        found, expected = track.proposal(amounts, moved), moves.proposal(track, amounts, moved)
        torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_rows_that_pad_a_stack_do_not_count(rng):
    track = draw(rng, torch.float64, by_components=False)
    X, before, y, older = track
    moves_padded = Moves(*(_padded(F) for F in older))
    padded = Track(_padded(X), _padded(before), _padded(y), moves_padded)
    real = torch.arange(50) < 40
    torch.testing.assert_close(padded.products(real), track.products(None))


def _padded(F: torch.Tensor) -> torch.Tensor:
    return torch.cat([F, torch.zeros(10, F.shape[1], dtype=F.dtype)])
