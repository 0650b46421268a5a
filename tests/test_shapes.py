"""The suite's own shape checks see what they are there to see."""

from dataclasses import dataclass
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


# Each kind of call is checked once: what differs in kind from what has passed is another.


@checked(typechecker=refuse)
def any_of(arrays: list[Float[Tensor, "m r"]], name: str) -> Float[Tensor, "m r"] | None:
    return {"first": arrays[0], "turned": arrays[0].mT, "none": None}[name]


@checked(typechecker=refuse)
@dataclass
class Pair:
    left: Float[Tensor, "m r"]
    right: Float[Tensor, "n r"]


def test_wrong_calls_fail_after_right_ones():
    for _ in range(2):
        assert product(V, V).shape == (5, 5)
        for wrong in (H, V.int(), V[0], V.numpy(), [V], None):
            with pytest.raises(TypeError):
                product(V, wrong)
        with pytest.raises(TypeError):
            product(V, B=H)


def test_a_wrong_result_fails_after_right_ones_of_like_parameters():
    given: list[Tensor] = []

    @checked(typechecker=refuse)
    def next_given(like: Float[Tensor, "m r"]) -> Float[Tensor, "m r"]:
        return given.pop()

    for right in (V, V + 1):
        given.append(right)
        assert next_given(V) is right
    for wrong in (H, V.int(), V.mT):
        for _ in range(2):
            given.append(wrong)
            with pytest.raises(TypeError):
                next_given(V)


def test_what_a_list_holds_is_looked_at_each_time():
    for _ in range(2):
        assert any_of([V], "first") is V
        assert any_of([V], "none") is None
        for wrong in ([H[0]], [V.int()], [None]):
            with pytest.raises(TypeError):
                any_of(wrong, "none")
        with pytest.raises(TypeError):
            any_of([V], "turned")


def test_a_dataclass_is_refused_wrong_fields_after_right_ones():
    for _ in range(2):
        assert Pair(V, right=V[:2]).left is V
        with pytest.raises(TypeError):
            Pair(V, right=H)


def test_functions_made_again_are_checked_by_their_own_shapes():
    def made(axes: str) -> Any:
        @checked(typechecker=refuse)
        def same(A: Float[Tensor, axes]) -> Float[Tensor, axes]:  # pyright: ignore
            return A

        return same

    assert made("m r")(V) is V
    assert made("m r")(V) is V
    with pytest.raises(TypeError):
        made("m m")(V)
