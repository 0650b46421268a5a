"""Folded attention; `lab/tests/nn/test_literal.py` compares it with literal message passing."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from factormer.data import Dense
from factormer.nn.attention import EdgeAttention
from factormer.nn.factormer import FactormerLayer
from tests.networks import random_layer, small_config

WIDTH = 8


class Case(NamedTuple):
    heads: int
    scale_by_width: bool = False
    n_edges: int = 1
    n_carried: int = 0

    def layer(self) -> FactormerLayer:
        config = small_config(width=WIDTH, heads=self.heads, scale_by_width=self.scale_by_width)
        return random_layer(config, n_edges=self.n_edges, n_carried=self.n_carried)


CASES = {
    "one head": Case(1),
    "two heads": Case(2),
    "a head per feature": Case(8),
    "scaled by width": Case(4, scale_by_width=True),
    "two edge scalars": Case(2, n_edges=2),
    "vectors carried": Case(2, n_edges=2, n_carried=3),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def draw(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=rng)


@each_case
@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_blocks_of_targets_equal_the_whole(case, block, rng):
    src, tgt = draw(rng, 5, WIDTH), draw(rng, 7, WIDTH)
    edges = [Dense(draw(rng, 7, 5)) for _ in range(case.n_edges)]
    carried = draw(rng, 5, case.n_carried) if case.n_carried else None
    attention = case.layer().attention
    whole = attention(src, tgt, edges, carried=carried)
    in_blocks = attention(src, tgt, edges, carried=carried, block=block)
    torch.testing.assert_close(in_blocks, whole, rtol=1e-12, atol=1e-12)


def test_padded_sources_send_no_message(rng):
    attention = Case(2).layer().attention
    src, tgt, E = draw(rng, 5, WIDTH), draw(rng, 4, WIDTH), draw(rng, 4, 5)
    real = torch.tensor([True, True, True, False, False])
    padded = attention(src, tgt, [Dense(E * real, None, real)])
    torch.testing.assert_close(padded, attention(src[:3], tgt, [Dense(E[:, :3])]))


def test_single_source_is_attended_to_in_full(rng):
    attention = Case(2).layer().attention
    src, tgt, V = draw(rng, 1, WIDTH), draw(rng, 3, WIDTH), draw(rng, 3, 1)
    implicit = torch.cat([src * tgt, V], dim=1)
    expected = attention.node_value(src) + attention.edge_value(implicit)
    torch.testing.assert_close(attention(src, tgt, [Dense(V)]), expected)


def test_gradients_agree_with_finite_differences(rng):
    config = small_config(width=4, heads=2)
    attention = random_layer(config, n_edges=2, n_carried=1).attention
    names = [name for name, _ in attention.named_parameters()]

    def messages(
        src: Tensor, tgt: Tensor, V: Tensor, R: Tensor, carried: Tensor, *weights: Tensor
    ) -> Tensor:
        parameters, edges = dict(zip(names, weights, strict=True)), [Dense(V), Dense(R)]
        return torch.func.functional_call(
            attention, parameters, (src, tgt, edges), {"carried": carried}
        )

    shapes = [(3, 4), (2, 4), (2, 3), (2, 3), (3, 1)]
    inputs = [draw(rng, *shape).requires_grad_() for shape in shapes]
    assert torch.autograd.gradcheck(messages, (*inputs, *attention.parameters()))


def test_large_scores_do_not_overflow(rng):
    attention = Case(2).layer().attention.float()
    src, tgt, V = (1e3 * draw(rng, *s).float() for s in ((5, WIDTH), (4, WIDTH), (4, 5)))
    assert attention(src, tgt, [Dense(V)]).isfinite().all()


def test_softmax_scale_is_that_of_a_head_unless_told_otherwise():
    assert EdgeAttention(16, 4).temperature == 2.0  # √(16/4)
    assert EdgeAttention(16, 4, scale_by_width=True).temperature == 4.0  # √16


def test_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="width is 10; it must be a multiple of heads"):
        EdgeAttention(10, 4)
