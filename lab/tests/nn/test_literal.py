"""The networks of the package against literal message passing along every edge."""

from collections.abc import Callable

import pytest
import torch
from tests.networks import random_layer, random_network, small_config
from tests.nn.cases import assert_same, draw_point, each_config
from tests.nn.test_attention import WIDTH, Case, draw, each_case
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer_lab.paper.graphs import augmented_line_digraph, transpose
from lab.tests import reference
from lab.tests.reference import LiteralFactormer

# The attention


@each_case
def test_messages_and_gradients_agree_with_literal_message_passing(case, rng):
    m, n = 7, 5
    layer = case.layer()
    src, tgt = draw(rng, m, WIDTH).requires_grad_(), draw(rng, n, WIDTH).requires_grad_()
    edges = [draw(rng, m, n).requires_grad_() for _ in range(case.n_edges)]
    carried = draw(rng, m, case.n_carried).requires_grad_()
    wanted = [src, tgt, *edges, *layer.attention.parameters()]
    wanted += [carried] if case.n_carried else []

    folded = layer.attention(
        src, tgt, [Dense(E.mT) for E in edges], carried=carried if case.n_carried else None
    )
    more = torch.stack([E.flatten() for E in edges], dim=1)[:, 1:]
    on_nodes = torch.cat([carried, torch.full((n, case.n_carried), torch.nan)])  # targets have none
    literal = LiteralFactormer(layer, scale_by_width=case.scale_by_width)
    graph = augmented_line_digraph(src, tgt, edges[0])
    expected = literal.messages(graph, more, on_nodes)[m:]
    torch.testing.assert_close(folded, expected, rtol=1e-10, atol=1e-12)

    weight = draw(rng, n, WIDTH)
    ours = torch.autograd.grad((folded * weight).sum(), wanted)
    theirs = torch.autograd.grad((expected * weight).sum(), wanted)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_w_update_is_message_passing_along_the_reversed_edges(rng):
    m, n = 6, 4
    layer = Case(2).layer()
    W, H, V = draw(rng, m, WIDTH), draw(rng, n, WIDTH), draw(rng, m, n)
    literal = LiteralFactormer(layer)
    reversed_edges = literal.messages(transpose(augmented_line_digraph(W, H, V)))[:m]
    of_transpose = literal.messages(augmented_line_digraph(H, W, V.mT))[n:]
    torch.testing.assert_close(reversed_edges, of_transpose, rtol=1e-12, atol=1e-12)
    folded = layer.attention(H, W, [Dense(V)])
    torch.testing.assert_close(folded, of_transpose, rtol=1e-10, atol=1e-12)


# The layer


@pytest.mark.parametrize("last", [False, True])
def test_layer_agrees_with_the_literal_one(last, rng):
    config = small_config()
    layer = random_layer(config, last=last)
    W, H, V = draw(rng, 6, config.width), draw(rng, 4, config.width), draw(rng, 6, 4)
    literal = LiteralFactormer(layer)(augmented_line_digraph(W, H, V))[6:]
    torch.testing.assert_close(layer(W, H, [Dense(V.mT)]), literal, rtol=1e-10, atol=1e-12)


# The network


@each_config
def test_outputs_and_gradients_agree_with_literal_message_passing(config, rng):
    model = random_network(config)
    x, V = draw_point(config, 7, 5, rng), draw(rng, 7, 5)
    inputs = [t.requires_grad_() for t in (*x, V)] + list(model.parameters())
    folded, literal = model(x, Dense(V)), reference.network(model, x, V)
    assert_same(folded, literal)
    assert all((F > 0).any() for F in folded)  # or there would be nothing to compare

    weights = draw(rng, 7, config.rank), draw(rng, 5, config.rank)

    def gradients(y: Factors) -> tuple[Tensor, ...]:
        scalar = (y.W * weights[0]).sum() + (y.H * weights[1]).sum()
        return torch.autograd.grad(scalar, inputs)

    for ours, theirs in zip(gradients(folded), gradients(literal), strict=True):
        scale = theirs.abs().max().item()
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10 * scale)


@pytest.mark.parametrize("variant", ["paper", "refining"])
def test_gradients_agree_with_finite_differences(variant, rng):
    config = small_config(variant=variant, rank=2, width=4, ffn_width=5, n_pairs=1)
    model = random_network(config, seed=1)
    x, V = draw_point(config, 3, 2, rng), draw(rng, 3, 2)
    names = [name for name, _ in model.named_parameters()]

    def outputs(W: Tensor, H: Tensor, V: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        parameters = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(model, parameters, (Factors(W, H), Dense(V)))

    inputs = (*(t.requires_grad_() for t in (*x, V)), *model.parameters())
    assert all((F > 0).any() for F in model(x, Dense(V)))
    assert torch.autograd.gradcheck(outputs, inputs)


# Memory


class LargestTensor(TorchDispatchMode):
    """Records the number of entries of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.entries = max([self.entries, *sizes])
        return result


def largest_tensor(compute: Callable[[], Factors]) -> int:
    """The most entries of a tensor made by a forward and a backward pass."""
    with LargestTensor() as largest:
        x = compute()
        (x.W.sum() + x.H.sum()).backward()
    return largest.entries


@pytest.mark.parametrize("variant", ["paper", "refining"])
def test_folding_makes_no_tensor_of_a_vector_per_edge(variant, rng):
    m, n, d = 60, 50, 20
    config = small_config(variant=variant, width=d, heads=4, n_pairs=1)
    model, x, V = random_network(config), draw_point(config, m, n, rng), draw(rng, m, n)
    assert largest_tensor(lambda: model(x, Dense(V))) < m * n * d
    assert largest_tensor(lambda: reference.network(model, x, V)) >= m * n * d
