"""The suite's own shape checks see what they are there to see."""

from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense
from factormer.solvers.coding import Coder
from tests.shapes import checked, refuse

V, H = torch.rand(5, 4), torch.rand(4, 2)


@checked(typechecker=refuse)
def product(A: Float[Tensor, "m r"], B: Float[Tensor, "n r"]) -> Float[Tensor, "m n"]:
    return A @ B.mT if len(A) > 1 else A


def test_right_shapes_pass():
    assert product(V, V).shape == (5, 5)
    assert Coder.of(H)(Dense(V)).shape == (5, 2)


@pytest.mark.parametrize("wrong", [H[0], H.int(), None], ids=["axes", "type", "none"])
def test_a_wrong_parameter_of_the_package_fails_at_the_call(wrong: Any):
    with pytest.raises(TypeError):
        Coder.of(wrong)


def test_parameters_that_do_not_fit_each_other_fail_at_the_call():
    with pytest.raises(TypeError):
        product(V, H)


def test_a_result_that_does_not_fit_the_parameters_fails_at_the_call():
    with pytest.raises(TypeError):
        product(V[:1], V[:3])
