"""Products of a point live as long as the point."""

import gc
from typing import NamedTuple

import torch

from factormer.data.factors import Factors
from factormer.data.known import Known


class Found(NamedTuple):
    x: Factors | None
    product: torch.Tensor


def point():
    return Factors(torch.rand(4, 2), torch.rand(3, 2))


def test_products_are_found_by_the_very_tensors_and_their_view():
    known, x, y = Known(), point(), point()
    a, b = torch.rand(2), torch.rand(2)
    known.keep("view", Found(x, a))
    known.keep("view", Found(y, b))
    assert known.at("view", *x).product is a
    assert known.at("view", W=y.W).product is b
    assert known.at("view", H=x.H).product is a
    assert known.at("other view", *x) is None
    assert known.at("view", x.W, y.H) is None
    assert known.at("view", x.W.clone(), x.H) is None


def test_an_old_point_keeps_its_products_and_forgotten_ones_take_no_room():
    known, first = Known(), point()
    known.keep(1.0, Found(first, torch.zeros(1)))
    for k in range(5):
        known.keep(1.0, Found(point(), torch.full((1,), float(k))))
    gc.collect()
    assert len(known) == 1
    assert known.at(1.0, *first).product == 0
    del first
    gc.collect()
    assert len(known) == 0
