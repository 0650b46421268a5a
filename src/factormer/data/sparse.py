"""Sparse data: only the entries that are not zero are kept, once by rows and once by columns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import readings
from factormer.data.base import Normal, inner, turned
from factormer.data.factors import Factors
from factormer.kernels.threads import share

_PARTS = 4  # blocks of rows of about equal work, and so threads at most


@dataclass(frozen=True, eq=False)
class Rows:
    """Compressed sparse rows: those of row i are starts[i] … starts[i + 1] of columns, values."""

    starts: Int[Tensor, " rows_and_end"]
    columns: Int[Tensor, " nnz"]
    values: Float[Tensor, " nnz"]
    n: int

    @cached_property
    def parts(self) -> list[tuple[slice, Tensor]]:
        """Blocks of rows of about equal work; they share the memory of the whole."""
        starts = self.starts.cpu().numpy()
        aims = np.linspace(0, starts[-1], (_PARTS if self.values.device.type == "cpu" else 1) + 1)
        cuts = np.unique([0, *np.searchsorted(starts, aims[1:-1]), len(starts) - 1]).tolist()
        return [(slice(a, b), self.block(a, b)) for a, b in pairwise(cuts)]

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Starts and columns as compiled loops take them."""
        starts, columns = (a.numpy().astype(np.int64) for a in (self.starts, self.columns))
        return starts, columns

    def block(self, a: int, b: int) -> Tensor:
        """The rows a … b as a sparse tensor."""
        inside = slice(int(self.starts[a]), int(self.starts[b]))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
            warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")
            return torch.sparse_csr_tensor(
                self.starts[a : b + 1] - self.starts[a],
                self.columns[inside],
                self.values[inside],
                (b - a, self.n),
                check_invariants=False,
            )

    def transposed(self) -> Rows:
        """The transposed matrix, by rows."""
        if self.values.is_cuda:
            return self._transposed_there()
        arrays = (a.cpu().numpy() for a in (self.values, self.columns, self.starts))
        csr = scipy.sparse.csr_array(tuple(arrays), shape=(len(self.starts) - 1, self.n))
        T = csr.T.tocsr()
        parts = (torch.from_numpy(a).to(self.values.device) for a in (T.indptr, T.indices, T.data))
        return Rows(*parts, n=T.shape[1])

    def _transposed_there(self) -> Rows:
        """Transpose on a GPU, by sorting: entries would take longer to the CPU and back."""
        order = torch.argsort(self.columns, stable=True)
        counts = torch.bincount(self.columns, minlength=self.n)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(self.starts.dtype)
        m = len(self.starts) - 1
        rows = torch.arange(m, device=self.values.device, dtype=self.columns.dtype)
        rows = rows.repeat_interleave(self.starts.diff(), output_size=len(self.columns))
        return Rows(starts, rows[order], self.values[order], n=m)

    def __matmul__(self, X: Float[Tensor, "n k"]) -> Float[Tensor, "m k"]:
        out, X = X.new_empty(len(self.starts) - 1, X.shape[1]), X.contiguous()

        def some(start: int, stop: int) -> None:
            for rows, block in self.parts[start:stop]:
                torch.mm(block, X, out=out[rows])

        share(some, len(self.parts), work=self.values.numel() * X.shape[1])
        return out


@dataclass(frozen=True, eq=False)
class Sparse:
    """`scale` times a sparse matrix; never made dense except in blocks on request.

    The transpose is made, and kept, on its first product.
    """

    by_rows: Rows
    scale: float = 1.0

    rows = None
    cols = None

    @staticmethod
    def of(V: Any, device: torch.device | None = None) -> Sparse:
        """From a scipy matrix of compressed rows, whose arrays are used as they are."""
        arrays = (torch.from_numpy(a).to(device) for a in (V.indptr, V.indices, V.data))
        return Sparse(Rows(*arrays, n=V.shape[1]))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.by_rows.starts) - 1, self.by_rows.n)

    @property
    def dtype(self) -> torch.dtype:
        return self.by_rows.values.dtype

    @property
    def device(self) -> torch.device:
        return self.by_rows.values.device

    def sq_norm(self) -> Float[Tensor, ""]:
        """‖V‖² in float64."""
        return self._sq_norm

    @cached_property
    def _sq_norm(self) -> Float[Tensor, ""]:
        readings.add()
        values = self.scale * self.by_rows.values.double()
        return torch.dot(values, values)

    @cached_property
    def compressed(self) -> tuple[np.ndarray, ...]:
        """Starts, columns and values by rows, and the same by columns, as the core takes them."""
        rows = self.by_rows
        values = self.scale * rows.values.double().numpy()
        csr = scipy.sparse.csr_array(
            (values, rows.columns.numpy(), rows.starts.numpy()), shape=self.shape
        )
        return tuple(
            array
            for half in (csr, csr.T.tocsr())
            for array in (
                half.indptr.astype(np.int64, copy=False),
                half.indices.astype(np.int32),  # a copy, which nobody else can write into
                half.data,
            )
        )

    def work(self) -> float:
        """The number of multiplications in a product with one column: the stored entries."""
        return float(self.by_rows.values.numel())

    @property
    def T(self) -> Sparse:
        return turned(self, lambda: Sparse(self.by_rows.transposed(), self.scale))

    def __matmul__(self, X: Float[Tensor, "n k"]) -> Float[Tensor, "m k"]:
        readings.add()
        return (self.by_rows @ X).mul_(self.scale)

    def normal(self, W: Float[Tensor, "m r"]) -> Normal:
        """Return (VᵀW, WᵀW)."""
        return Normal(self.T @ W, W.mT @ W)

    def sq_error(self, x: Factors) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖², by the Gram expansion in float64: the residual itself would be dense."""
        W, H = x.W.double(), x.H.double()
        V = self
        if self.dtype != torch.float64:  # and scaled there, not before
            V = Sparse(replace(self.by_rows, values=self.by_rows.values.double()), self.scale)
        fit = inner(W.mT @ W, H.mT @ H) - 2 * inner(V @ H, W)
        return (self.sq_norm() + fit).clamp(min=0)

    def total(self) -> Float[Tensor, ""]:
        """The sum of all entries."""
        readings.add()
        return self.scale * self.by_rows.values.double().sum()  # which may overflow float32

    def scaled(self, c: Float[Tensor, ""]) -> Sparse:
        """The matrix c·V; entries are shared, unless their sums might overflow."""
        scale, far = self.scale * float(c), torch.finfo(self.dtype).max ** 0.5
        if 1 / far < scale < far:
            return Sparse(self.by_rows, scale)
        values = (scale * self.by_rows.values.double()).to(self.dtype)
        return Sparse(replace(self.by_rows, values=values))

    def to(self, dtype: torch.dtype) -> Sparse:
        """The matrix in another precision, scaled first: otherwise it might overflow."""
        values = (self.scale * self.by_rows.values).to(dtype)
        return Sparse(replace(self.by_rows, values=values))

    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "k n"]]]:
        """Yield the rows in dense blocks of at most `size` (None: all at once)."""
        readings.add()
        m = self.shape[0]
        for start in range(0, m, size or m):
            stop = min(start + (size or m), m)
            yield slice(start, stop), self.scale * self.by_rows.block(start, stop).to_dense()
