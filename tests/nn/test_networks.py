"""Every network obeys the symmetries of its graph."""

import pytest
import torch
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from tests.networks import random_network
from tests.nn.cases import assert_same, draw, draw_point, each_config

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
