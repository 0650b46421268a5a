"""Dense data: one matrix, or a stack of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.data import readings
from factormer.data.base import A, Normal, inner, n_entries
from factormer.data.factors import Factors
from factormer.kernels.threads import gather, share

_TALL = 8192  # rows from which a product with a transpose is a sum over pieces of so many
_BLOCK = 2**15  # entries per block: larger buffers are returned to the system each time


@dataclass(frozen=True, eq=False)
class Dense:
    """A dense matrix, or a stack of equal (or equally padded) shape.

    `entries` are the stored ones times `scale`, and in another precision if requested: that takes
    as long as a product, so they are made on first use.
    """

    stored: Float[Tensor, "*b m n"]
    rows: Bool[Tensor, "*b m"] | None = None
    cols: Bool[Tensor, "*b n"] | None = None
    scale: Float[Tensor, "*b"] | None = None
    precision: torch.dtype | None = None

    @cached_property
    def entries(self) -> Float[Tensor, "*b m n"]:
        """The entries of the matrix."""
        V = self.stored
        if self.scale is None and self.dtype == V.dtype:
            return V
        readings.add()
        c = 1.0 if self.scale is None else self.scale[..., None, None]
        if not self._is_large or V.requires_grad:
            return (V * c).to(self.dtype)
        out = torch.empty_like(V, dtype=self.dtype)

        def convert(start: int, stop: int) -> None:
            torch.mul(V[start:stop], c, out=out[start:stop])

        self._in_blocks(convert)
        return out

    @property
    def _is_large(self) -> bool:
        """Whether V is one matrix that is better read in blocks."""
        return self.stored.dim() == 2 and self.stored.numel() > _BLOCK

    def _in_blocks(self, part: Callable[[int, int], A]) -> list[A]:
        """Return part(start, stop) of each block of rows, shared out over threads on a CPU."""
        on_cpu, (m, n) = self.device.type == "cpu", self.shape
        size = max(1, (_BLOCK if on_cpu else 2**26) // n)
        return gather(part, m, size, work=m * n if on_cpu else 0)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.stored.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.precision or self.stored.dtype

    @property
    def device(self) -> torch.device:
        return self.stored.device

    def sq_norm(self) -> Float[Tensor, "*b"]:
        """‖V‖² in float64."""
        return self._sq_norm

    @cached_property
    def _sq_norm(self) -> Float[Tensor, "*b"]:
        readings.add()
        if not self._is_large:
            return inner(self.entries, self.entries)
        c = 1.0 if self.scale is None else self.scale

        def part(start: int, stop: int) -> Tensor:
            block = (self.stored[start:stop].double() * c).flatten()
            return block.dot(block)

        return torch.stack(self._in_blocks(part)).sum()

    def work(self) -> float | Float[Tensor, "*b"]:
        """The number of multiplications in a product with one column."""
        plain = self.stored.dim() == 2 and self.rows is None and self.cols is None
        return float(self.stored.numel()) if plain else n_entries(self)

    @property
    def T(self) -> Dense:
        return self._transposed

    @cached_property
    def _transposed(self) -> Dense:
        return Dense(self.entries.mT, self.cols, self.rows)

    @cached_property
    def chain(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Arrays, by rows and in float64, that Wᵀ and Hᵀ are multiplied with in turn."""
        return (row_major(self.entries),), (row_major(self.entries.mT),)

    def __matmul__(self, X: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b m k"]:
        readings.add()
        return product(self.entries, X)

    def normal(self, W: Float[Tensor, "*b m r"]) -> Normal:
        """Return (VᵀW, WᵀW)."""
        readings.add()
        return Normal(product(self.entries.mT, W), W.mT @ W)

    def sq_error(self, x: Factors) -> Float[Tensor, "*b"]:
        """‖W Hᵀ − V‖², from the residual itself: the Gram expansion has no digit near a fit."""
        readings.add()
        V, (W, H) = self.entries, x
        if torch.is_grad_enabled() or V.dim() > 2:
            return (W @ H.mT - V).square().sum(dim=(-2, -1))
        if not self._is_large:
            return _sq_residual(V, W, H)
        return torch.stack(self._in_blocks(lambda a, b: _sq_residual(V[a:b], W[a:b], H))).sum()

    def total(self) -> Float[Tensor, "*b"]:
        """The sum of all entries."""
        return self._total

    @cached_property
    def _total(self) -> Float[Tensor, "*b"]:
        readings.add()
        V = self.entries
        if not self._is_large:
            return V.sum(dim=(-2, -1), dtype=torch.float64)  # which may overflow float32
        return torch.stack(self._in_blocks(lambda a, b: V[a:b].sum(dtype=torch.float64))).sum()

    def scaled(self, c: Float[Tensor, "*b"]) -> Dense:
        """The matrix c·V."""
        other = replace(self, scale=c if self.scale is None else c * self.scale)
        if "_total" in self.__dict__:
            other.__dict__["_total"] = c * self.total()
        return other

    def to(self, dtype: torch.dtype) -> Dense:
        """The matrix in another precision; its norm is that of the stored numbers."""
        other = replace(self, precision=dtype)
        other.__dict__["_sq_norm"] = self.sq_norm()
        return other

    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "*b k n"]]]:
        """Yield the rows in dense blocks of at most `size` (None: all at once)."""
        readings.add()
        m = self.shape[-2]
        for start in range(0, m, size or m):
            rows = slice(start, min(start + (size or m), m))
            yield rows, self.entries[..., rows, :]


def _sq_residual(
    V: Float[Tensor, "m n"], W: Float[Tensor, "m r"], H: Float[Tensor, "n r"]
) -> Float[Tensor, ""]:
    residual = torch.addmm(V, W, H.mT, beta=-1).view(-1)
    return residual.dot(residual)


def row_major(A: Float[Tensor, "m n"]) -> np.ndarray:
    """The matrix by rows and in float64, as compiled loops take it."""
    return np.ascontiguousarray(A.numpy(), np.float64)


def product(A: Float[Tensor, "*b m n"], X: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b m k"]:
    """A @ X; for one thin X on a CPU in the memory order that is fastest, over several threads.

    Where A is stored by columns, Xᵀ Aᵀ reads it in order.
    """
    if A.dim() > 2 or A.device.type != "cpu" or torch.is_grad_enabled():
        return A @ X
    work = A.numel() * X.shape[1]
    if A.stride(0) == 1 and A.stride(1) > 1:
        At, Xt, out = A.mT, X.mT.contiguous(), A.new_empty(X.shape[1], A.shape[0])
        share(lambda a, b: torch.mm(Xt, At[:, a:b], out=out[:, a:b]), A.shape[0], work=work)
        return out.mT
    X, out = X.contiguous(), A.new_empty(A.shape[0], X.shape[1])
    share(lambda a, b: torch.mm(A[a:b], X, out=out[a:b]), A.shape[0], work=work)
    return out


def turned_product(A: Float[Tensor, "m p"], X: Float[Tensor, "m k"]) -> Float[Tensor, "p k"]:
    """AᵀX of a tall A, summed over pieces of rows, which threads share; `product` cuts columns."""
    m, (p, k) = len(A), (A.shape[1], X.shape[1])
    if m <= _TALL or A.device.type != "cpu" or torch.is_grad_enabled():
        return product(A.mT, X)
    found = gather(lambda a, b: X[a:b].mT @ A[a:b], m, _TALL, work=m * p * k)
    return torch.stack(found).sum(dim=0).mT
