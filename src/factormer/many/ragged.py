"""Matrices of many shapes in one tensor: thousands that need no look at each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor


class Ragged(Sequence[Tensor]):
    """Matrices of different shapes, by rows, one after another in one tensor.

    `factorize_many` takes it like the list of its matrices. On a GPU it is the fastest way to pass
    thousands of them: Python looks at one tensor, not at each.

    Parameters
    ----------
    entries : Tensor or array, 1-D
        All entries: the rows of the first matrix, those of the second, and so on.
    shapes : array of int, (problems, 2)
        Rows and columns of each.
    """

    def __init__(self, entries: Any, shapes: Any) -> None:
        self.entries, self.shapes = torch.as_tensor(entries).detach(), _shapes(shapes)
        sizes = self.shapes.prod(axis=1)
        self.starts = np.cumsum(sizes) - sizes
        if self.entries.dim() != 1 or len(self.entries) != sizes.sum():
            raise ValueError(
                f"entries has shape {tuple(self.entries.shape)}; {len(sizes)} matrices of these "
                f"shapes have {sizes.sum()} entries, which must be in one row"
            )

    @classmethod
    def of(cls, matrices: Sequence[Any]) -> Ragged:
        """A copy of matrices, where they are."""
        tensors = [torch.as_tensor(A).detach() for A in matrices]
        if not tensors:
            raise ValueError("matrices is empty; pass one at least")
        return cls(torch.cat([A.reshape(-1) for A in tensors]), [tuple(A.shape) for A in tensors])

    @classmethod
    def of_stack(cls, stack: Tensor) -> Ragged:
        """The matrices of a stack (problems, m, n), where they are."""
        shapes = np.broadcast_to(np.array(stack.shape[1:]), (len(stack), 2))
        return cls(stack.reshape(-1), shapes)

    def stacked(self, chosen: np.ndarray) -> Tensor:
        """Some of the matrices, which have one shape, as a stack; all of them without a copy."""
        stack = self.entries.view(-1, *self.shapes[0].tolist())
        return (
            stack if len(chosen) == len(stack) else stack[torch.from_numpy(chosen).to(stack.device)]
        )

    @staticmethod
    def is_stack(problems: Any) -> bool:
        """Whether these are matrices of one shape in one tensor, as it is, on a GPU."""
        is_tensor = type(problems) is Tensor and problems.is_cuda and problems.dim() == 3
        return is_tensor and problems.numel() > 0 and problems.is_contiguous()

    def to(self, *args: Any, **options: Any) -> Ragged:
        """On another device, or in another precision, as `torch.Tensor.to`."""
        return Ragged(self.entries.to(*args, **options), self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        (m, n), start = self.shapes[index].tolist(), int(self.starts[index])
        return self.entries[start : start + m * n].view(m, n)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        kind, device = str(self.entries.dtype).removeprefix("torch."), self.entries.device
        return f"<Ragged: {len(self)} matrices, {kind}, on {device}>"


def _shapes(shapes: Any) -> np.ndarray:
    found = np.asarray(shapes.cpu() if isinstance(shapes, Tensor) else shapes)
    fine = found.ndim == 2 and found.shape[1:] == (2,) and len(found) and found.dtype.kind in "iu"
    if not fine or (found < 1).any():
        raise ValueError(
            f"shapes has shape {found.shape}; it must have a row for each matrix, with its rows "
            "and columns as whole numbers of at least 1"
        )
    return found.astype(np.int64)
