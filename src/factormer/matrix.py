"""The data V, the only code that touches its entries.

Solvers, starts and networks ask a `Matrix` for products, errors and row blocks, and never what kind
it is: sparse, compressed or distributed data is another class here.
Shapes: m rows, n columns, r rank, *b batch axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.factors import Factors


class Normal(NamedTuple):
    """The normal equations of min ‖W Hᵀ − V‖² over H: all that an H-update may know of V."""

    VtW: Float[Tensor, "*b n r"]
    WtW: Float[Tensor, "*b r r"]


@runtime_checkable
class Matrix(Protocol):
    """A nonnegative matrix V (m, n), or a stack of them.

    `rows` and `cols` say which rows and columns are real where a stack is padded with zeros to
    equal shape (None: all of them). Padding is exact for products, errors and solvers, since zeros
    stay zero; only attention and counts have to look.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def rows(self) -> Bool[Tensor, "*b m"] | None: ...
    @property
    def cols(self) -> Bool[Tensor, "*b n"] | None: ...
    @property
    def T(self) -> Matrix: ...
    def __matmul__(self, X: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b m k"]: ...
    def normal(self, W: Float[Tensor, "*b m r"]) -> Normal: ...
    def sq_error(self, x: Factors) -> Float[Tensor, "*b"]: ...
    def total(self) -> Float[Tensor, "*b"]: ...
    def scaled(self, c: Float[Tensor, "*b"]) -> Matrix: ...
    def to(self, dtype: torch.dtype) -> Matrix: ...
    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "*b k n"]]]: ...


def n_rows(V: Matrix) -> Float[Tensor, "*b"]:
    """The number of real rows m of each matrix, padding left out."""
    if V.rows is None:
        return torch.full(V.shape[:-2], V.shape[-2], dtype=V.dtype, device=V.device)
    return V.rows.sum(dim=-1).to(V.dtype)


def n_entries(V: Matrix) -> Float[Tensor, "*b"]:
    """The number of real entries m·n of each matrix, padding left out."""
    return n_rows(V) * n_rows(V.T)


def zero_padding(
    F: Float[Tensor, "*b m r"], real: Bool[Tensor, "*b m"] | None
) -> Float[Tensor, "*b m r"]:
    """Set the rows that only pad a stack to zero."""
    return F if real is None else F * real[..., None]


@dataclass(frozen=True, eq=False)
class Dense:
    """A dense matrix, or a stack of equal (or equally padded) shape."""

    entries: Float[Tensor, "*b m n"]
    rows: Bool[Tensor, "*b m"] | None = None
    cols: Bool[Tensor, "*b n"] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.entries.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.entries.dtype

    @property
    def device(self) -> torch.device:
        return self.entries.device

    @property
    def T(self) -> Dense:
        return Dense(self.entries.mT, self.cols, self.rows)

    def __matmul__(self, X: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b m k"]:
        return self.entries @ X

    def normal(self, W: Float[Tensor, "*b m r"]) -> Normal:
        """Return (VᵀW, WᵀW)."""
        return Normal(self.entries.mT @ W, W.mT @ W)

    def sq_error(self, x: Factors) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖², from the residual itself: the Gram expansion has no digit near a fit."""
        if torch.is_grad_enabled() or self.entries.dim() > 2:
            return (x.W @ x.H.mT - self.entries).square().sum(dim=(-2, -1))
        blocks = self.blocks(max(1, 2**22 // self.shape[-1]))  # at most 4M residuals at a time
        errors = (torch.addmm(V, x.W[k], x.H.mT, beta=-1).square_().sum() for k, V in blocks)
        return torch.stack(list(errors)).sum()

    def total(self) -> Float[Tensor, "*b"]:
        """The sum of all entries."""
        return self.entries.sum(dim=(-2, -1))

    def scaled(self, c: Float[Tensor, "*b"]) -> Dense:
        """The matrix c·V."""
        return Dense(self.entries * c[..., None, None], self.rows, self.cols)

    def to(self, dtype: torch.dtype) -> Dense:
        """The matrix in another precision."""
        return Dense(self.entries.to(dtype), self.rows, self.cols)

    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "*b k n"]]]:
        """Yield the rows in dense blocks of at most `size` (None: all at once)."""
        m = self.shape[-2]
        for start in range(0, m, size or m):
            rows = slice(start, min(start + (size or m), m))
            yield rows, self.entries[..., rows, :]
