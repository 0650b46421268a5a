"""Dense data on a GPU whose products are made by its tensor cores, nearly in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import readings
from factormer.data.base import Normal, turned
from factormer.data.dense import Dense

_FEW = 2**22  # entries up to which other kernels take longer than products
WIDE = 64  # columns of which tensor cores take a multiple


class Halves(NamedTuple):
    """A matrix as the sum of two in bfloat16, to 17 bits: as many bytes as in float32."""

    high: Tensor
    low: Tensor

    @staticmethod
    def of(A: Float[Tensor, "m n"]) -> Halves:
        high = A.to(torch.bfloat16)
        return Halves(high, (A - high).to(torch.bfloat16))

    @property
    def mT(self) -> Halves:
        """The transposed matrix."""
        return Halves(self.high.mT, self.low.mT)

    def __matmul__(self, X: Float[Tensor, "n k"]) -> Float[Tensor, "m k"]:
        """The product with X, likewise in halves; only that of both low ones is left out."""
        k = X.shape[1]
        x = Halves.of(torch.nn.functional.pad(X, (0, -k % WIDE)))
        width = x.high.shape[1]
        first = _product(self.high, torch.cat(x, dim=1))
        return first[:, :k] + (first[:, width : width + k] + _product(self.low, x.high)[:, :k])


def _product(A: Tensor, B: Tensor) -> Float[Tensor, "m k"]:
    """A product of bfloat16 numbers, summed up in float32."""
    if A.is_cuda:
        return torch.mm(A, B, out_dtype=torch.float32)
    return A.float() @ B.float()


@dataclass(frozen=True, eq=False)
class Split(Dense):
    """Dense data with products of halves; all else is that of the entries themselves.

    Entries are then rounded to 17 bits: for iterations whose errors are well above that.
    """

    halves: Halves | None = None

    @staticmethod
    def of(V: Dense) -> Dense:
        """V in halves where that pays: one large matrix in float32, on a GPU with room for them."""
        large = len(V.shape) == 2 and V.stored.numel() > _FEW and V.dtype == torch.float32
        if not large or V.device.type != "cuda" or V.rows is not None or V.cols is not None:
            return V
        entries = V.entries
        free, _ = torch.cuda.mem_get_info(V.device)
        able = torch.cuda.get_device_capability(V.device) >= (8, 0)
        if not able or free < 2 * entries.nbytes:
            return V
        return V.__dict__.setdefault("_split", Split(entries, halves=Halves.of(entries)))

    @property
    def T(self) -> Split:
        assert self.halves is not None
        return turned(self, lambda: Split(self.entries.mT, halves=self._halves.mT))

    @property
    def _halves(self) -> Halves:
        assert self.halves is not None
        return self.halves

    def __matmul__(self, X: Float[Tensor, "n k"]) -> Float[Tensor, "m k"]:
        readings.add()
        return self._halves @ X

    def of_halves(self, x: Tensor) -> tuple[Float[Tensor, "m k2"], Float[Tensor, "m k"]]:
        """The two products that make VX, of X in halves side by side: see `Halves`."""
        readings.add()
        high = x[:, : x.shape[1] // 2]
        return _product(self._halves.high, x), _product(self._halves.low, high)

    def normal(self, W: Float[Tensor, "m r"]) -> Normal:
        """Return (VᵀW, WᵀW)."""
        readings.add()
        return Normal(self._halves.mT @ W, W.mT @ W)
