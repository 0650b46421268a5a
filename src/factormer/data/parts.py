"""What a pass does with one block of rows, here or on another machine.

A part is called with a block, dense or CSR, and with the same rows of other tensors. It returns
tensors by rows, which are joined to whole ones, and others, which are summed over the blocks.
Parts are plain values, so that they can be sent to where a block is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.base import inner
from factormer.data.dense import product

# Share of the squared norm of a block below which its error is computed from its entries.
_RESOLVED = {torch.float32: 1e-2, torch.float64: 1e-6}

Parts = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
Part = Callable[..., Parts]  # of a block, and of rows of other tensors
Update = Callable[[Float[Tensor, "k r"], Float[Tensor, "k r"]], Float[Tensor, "k r"]]


def as_block(rows: Any, dtype: torch.dtype) -> Any:
    """Rows as they were read, in floating numbers: a tensor, or scipy's CSR."""
    kind = np.float32 if dtype == torch.float32 else np.float64
    if scipy.sparse.issparse(rows):
        return scipy.sparse.csr_array(rows).astype(kind, copy=False)
    return torch.from_numpy(np.array(rows, kind, order="C", copy=True))


def times(block: Any, X: Float[Tensor, "n k"]) -> Float[Tensor, "b k"]:
    """The product of a block with X."""
    if scipy.sparse.issparse(block):
        return torch.from_numpy(block @ X.numpy())
    return product(block, X)


def turned_times(block: Any, Y: Float[Tensor, "b k"]) -> Float[Tensor, "n k"]:
    """The product of the transpose of a block with Y."""
    if scipy.sparse.issparse(block):
        return torch.from_numpy(block.T @ Y.numpy())
    return product(block.mT, Y)


@dataclass(frozen=True, eq=False)
class Nothing:
    """No product."""

    def __call__(self, block: Any) -> Parts:
        return (), ()


@dataclass(frozen=True, eq=False)
class Times:
    """VX."""

    X: Float[Tensor, "n k"]

    def __call__(self, block: Any) -> Parts:
        return (times(block, self.X),), ()


@dataclass(frozen=True, eq=False)
class TurnedTimes:
    """VᵀY."""

    def __call__(self, block: Any, Y: Tensor) -> Parts:
        return (), (turned_times(block, Y),)


@dataclass(frozen=True, eq=False)
class Both:
    """VX and VᵀVX: a block of VX needs only the same block of V."""

    X: Float[Tensor, "n k"]

    def __call__(self, block: Any) -> Parts:
        Y = times(block, self.X)
        return (Y,), (turned_times(block, Y),)


@dataclass(frozen=True, eq=False)
class Updated:
    """VH, W updated from it, VᵀW, and the squared error, of c·V."""

    H: Float[Tensor, "n r"]
    update: Update
    c: float

    def __call__(self, block: Any, sums: Tensor, W: Tensor) -> Parts:
        VH = self.c * times(block, self.H)
        W = self.update(VH, W)
        error = _sq_error(block, self.c, float(sums[:, 1].sum()), W, self.H, VH)
        return (VH, W), (self.c * turned_times(block, W), error)


@dataclass(frozen=True, eq=False)
class Misfit:
    """The squared error ‖W Hᵀ − c·V‖²."""

    H: Float[Tensor, "n r"]
    c: float

    def __call__(self, block: Any, sums: Tensor, W: Tensor) -> Parts:
        VH = self.c * times(block, self.H)
        return (), (_sq_error(block, self.c, float(sums[:, 1].sum()), W, self.H, VH),)


@dataclass(frozen=True, eq=False)
class Surveyed:
    """Another part after a check of the entries; the sum of each row, and of its squares."""

    part: Part
    name: str

    def __call__(self, block: Any, *rows: Tensor) -> Parts:
        sums = _survey(block, self.name)
        if isinstance(self.part, Updated | Misfit):
            rows = (sums, *rows[1:])
        joined, summed = self.part(block, *rows)
        return (*joined, sums), summed


def _survey(block: Any, name: str) -> Float[Tensor, "b 2"]:
    """The sums of each row and of its squares; entries must be finite and not negative."""
    sparse = scipy.sparse.issparse(block)
    values = torch.from_numpy(block.data) if sparse else block
    if values.numel():
        low, high = (float(bound) for bound in values.aminmax())
        _check(values, low, high, name)
    if sparse:
        sums = [A.sum(axis=1) for A in (block, block.power(2))]
        return torch.from_numpy(np.stack([np.asarray(s, np.float64).ravel() for s in sums], 1))
    total = block.sum(dim=1, dtype=torch.float64)
    return torch.stack([total, torch.linalg.vector_norm(block, dim=1, dtype=torch.float64) ** 2], 1)


def _check(values: Tensor, low: float, high: float, name: str) -> None:
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = int((~values.isfinite()).sum())
        raise ValueError(
            f"{name} has {bad} entries that are NaN or infinite; all must be finite: remove or "
            "impute them first"
        )
    if low < 0:
        bad = int((values < 0).sum())
        raise ValueError(
            f"Negative values in data passed to NMF: {name} has {bad} entries below zero (the "
            f"least is {low:g}) and it needs entries of at least 0: shift or clip them first"
        )


def _sq_error(
    block: Any, c: float, squares: float, W: Tensor, H: Tensor, VH: Tensor
) -> Float[Tensor, ""]:
    """‖W Hᵀ − c·block‖² from VH and the squares, or where few digits are left, from entries."""
    norm = torch.tensor(c * c * squares, dtype=torch.float64)
    error = norm - 2 * inner(VH, W) + inner(W.mT @ W, H.mT @ H)
    if bool(error >= _RESOLVED[W.dtype] * norm):
        return error
    if not scipy.sparse.issparse(block):
        residual = torch.addmm(block, W, H.mT, beta=-c)
        return torch.linalg.vector_norm(residual, dtype=torch.float64) ** 2
    W, H = W.double(), H.double()
    VH = c * times(block.astype(np.float64), H)
    return (norm + inner(W.mT @ W, H.mT @ H) - 2 * inner(VH, W)).clamp(min=0)
