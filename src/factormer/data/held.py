"""Rows that stay on the workers of a cluster: a tensor here has their shape, and a few of them."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor


class Held(Tensor):
    """A matrix whose rows lie on workers, and which no operation of torch can read.

    `parts` are futures, one for each group of chunks, of tuples of which the rows are those at
    `place`; while one of them lives, so do the rows. `few` are the rows of a sample.
    """

    parts: tuple[Any, ...]
    place: int
    few: Float[Tensor, "s k"]

    @staticmethod
    def of(rows: int, parts: tuple[Any, ...], place: int, few: Float[Tensor, "s k"]) -> Held:
        """Make a tensor of so many rows in all, of the width and precision of the few."""
        make: Any = torch.Tensor._make_wrapper_subclass
        self = make(Held, (rows, few.shape[1]), dtype=few.dtype)
        self.parts, self.place, self.few = parts, place, few
        return self

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Held({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        raise TypeError(
            f"these rows lie on Dask workers, and {func} needs them here: gather them first"
        )
