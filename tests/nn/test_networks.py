"""What holds for every network: it is its literal twin, and obeys the symmetries of its graph."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from factormer.data import Dense
from factormer.data.factors import Factors
from tests import reference
from tests.networks import random_network, small_config
from tests.nn.cases import assert_same, draw, draw_point, each_config

# Against the literal network


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


# Laws


@each_config
@pytest.mark.parametrize("block", [1, 3, 100])
def test_blocks_equal_the_whole(config, block, rng):
    model, x, V = random_network(config), draw_point(config, 7, 5, rng), Dense(draw(rng, 7, 5))
    assert_same(model(x, V, block=block), model(x, V))


@each_config
def test_padded_stack_equals_its_members(config, rng):
    model, (m, n), sizes = random_network(config), (7, 6), [(4, 6), (7, 3), (1, 1), (7, 6)]
    points = [draw_point(config, *size, rng) for size in sizes]
    matrices = [draw(rng, *size) for size in sizes]
    V = Dense(
        torch.stack([padded(V, m, n) for V in matrices]),
        torch.stack([torch.arange(m) < k for k, _ in sizes]),
        torch.stack([torch.arange(n) < k for _, k in sizes]),
    )
    p, r = config.n_points * config.rank, config.rank
    W, H = torch.stack([padded(x.W, m, p) for x in points]), [padded(x.H, n, p) for x in points]
    together = model(Factors(W, torch.stack(H)), V)
    for k, (point, entries) in enumerate(zip(points, matrices, strict=True)):
        alone = model(point, Dense(entries))
        expected = Factors(padded(alone.W, m, r), padded(alone.H, n, r))  # zero on padding
        assert_same(Factors(together.W[k], together.H[k]), expected)
        assert not together.W[k, sizes[k][0] :].any()
        assert not together.H[k, sizes[k][1] :].any()


def padded(A: Tensor, rows: int, columns: int) -> Tensor:
    return torch.nn.functional.pad(A, (0, columns - A.shape[1], 0, rows - A.shape[0]))


@each_config
def test_rows_and_columns_permute_with_the_result(config, rng):
    model, x, V = random_network(config), draw_point(config, 7, 5, rng), draw(rng, 7, 5)
    p, q = torch.randperm(7, generator=rng), torch.randperm(5, generator=rng)
    y, permuted = model(x, Dense(V)), model(Factors(x.W[p], x.H[q]), Dense(V[p][:, q]))
    assert_same(permuted, Factors(y.W[p], y.H[q]))


@each_config
def test_order_of_components_matters(config, rng):
    model, V = random_network(config), Dense(draw(rng, 7, 5))
    x = draw_point(config, 7, 5, rng)
    y, flipped = model(x, V), model(Factors(x.W.flip(-1), x.H.flip(-1)), V)
    assert not torch.allclose(flipped.W, y.W.flip(-1))


@each_config
def test_output_is_feasible(config, rng):
    model, V = random_network(config), Dense(draw(rng, 7, 5))
    x = Factors(*(10 * F for F in draw_point(config, 7, 5, rng)))
    assert all((F >= 0).all() and F.isfinite().all() for F in model(x, V))
