"""Parts: the work of a pass on one block of rows, here or on another machine.

A part is called with a block, dense or CSR, and with the same rows of other tensors. It returns
tensors by rows, which are joined to whole ones, and others, which are summed over the blocks.
Parts are plain values, so that they can be sent to where a block is; `makes` says how many tensors
of the one and of the other kind they return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.data.base import inner
from factormer.data.dense import product
from factormer.kernels.threads import share
from factormer.sentence import Sentence

# Share of the squared norm of a block below which its error is computed from its entries.
_RESOLVED = {torch.float32: 1e-2, torch.float64: 1e-6}

_LARGE = 2**16  # entries of a block from which compiled code surveys it
_PIECE = 2**17  # entries of what is copied at a time
_FAR_PIECE = 2**24  # the same on a GPU

Parts = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
Part = Callable[..., Parts]  # of a block, and of rows of other tensors
Update = Callable[[Float[Tensor, "k r"], Float[Tensor, "k r"]], Float[Tensor, "k r"]]


def as_block(rows: Any, dtype: torch.dtype, room: np.ndarray | None = None) -> Any:
    """Rows as they were read, in floating numbers: scipy's CSR, or a tensor, in `room` if given."""
    kind = kernels.real(dtype)
    if scipy.sparse.issparse(rows):
        return scipy.sparse.csr_array(rows).astype(kind, copy=False)
    block = np.empty(rows.shape, kind) if room is None else room[: len(rows)]
    np.copyto(block, rows, casting="unsafe")
    return torch.from_numpy(block)


def lent(rows: Any, dtype: torch.dtype) -> Any:
    """`as_block` without a copy where none is needed; nothing may be written to it."""
    kind = kernels.real(dtype)
    if not isinstance(rows, np.ndarray) or rows.dtype != kind or not rows.flags.c_contiguous:
        return as_block(rows, dtype)
    return torch.from_numpy(rows if rows.flags.writeable else np.asarray(_Lent(rows)))


class _Lent:
    """An array that may not be written to, without its saying so, which torch would warn of."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows
        about = rows.__array_interface__
        self.__array_interface__ = {**about, "data": (about["data"][0], False)}


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

    makes: ClassVar = (0, 0)

    def __call__(self, block: Any) -> Parts:
        return (), ()


@dataclass(frozen=True, eq=False)
class Times:
    """VX."""

    X: Float[Tensor, "n k"]

    makes: ClassVar = (1, 0)

    def __call__(self, block: Any) -> Parts:
        return (times(block, self.X),), ()


@dataclass(frozen=True, eq=False)
class TurnedTimes:
    """VᵀY."""

    makes: ClassVar = (0, 1)

    def __call__(self, block: Any, Y: Tensor) -> Parts:
        return (), (turned_times(block, Y),)


@dataclass(frozen=True, eq=False)
class Both:
    """VX and VᵀVX: a block of VX needs only the same block of V."""

    X: Float[Tensor, "n k"]

    makes: ClassVar = (1, 1)

    def __call__(self, block: Any) -> Parts:
        Y = times(block, self.X)
        return (Y,), (turned_times(block, Y),)


@dataclass(frozen=True, eq=False)
class Gram:
    """VᵀVX alone."""

    X: Float[Tensor, "n k"]

    makes: ClassVar = (0, 1)

    def __call__(self, block: Any) -> Parts:
        return (), (turned_times(block, times(block, self.X)),)


@dataclass(frozen=True, eq=False)
class Updated:
    """VH, W updated from it, VᵀW, and the squared error, of c·V."""

    H: Float[Tensor, "n r"]
    update: Update
    c: float

    makes: ClassVar = (2, 2)

    def __call__(self, block: Any, sums: Tensor, W: Tensor) -> Parts:
        (VH, W), error = self.half(block, times(block, self.H), sums, W)
        return (VH, W), (self.c * turned_times(block, W), error)

    def half(
        self, block: Any, VH: Tensor, sums: Tensor, W: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """VH and W, and the squared error, from the product of the block with H."""
        VH = self.c * VH
        W = self.update(VH, W)
        return (VH, W), _sq_error(block, self.c, float(sums[:, 1].sum()), W, self.H, VH)


@dataclass(frozen=True, eq=False)
class Misfit:
    """The squared error ‖W Hᵀ − c·V‖²."""

    H: Float[Tensor, "n r"]
    c: float

    makes: ClassVar = (0, 1)

    def __call__(self, block: Any, sums: Tensor, W: Tensor) -> Parts:
        VH = self.c * times(block, self.H)
        return (), (_sq_error(block, self.c, float(sums[:, 1].sum()), W, self.H, VH),)


@dataclass(frozen=True, eq=False)
class Surveyed:
    """Another part after a check of the entries; the sum of each row, and of its squares."""

    part: Part
    name: str
    columns: tuple[str, ...] = ()  # their names, if known

    def __call__(self, block: Any, *rows: Tensor) -> Parts:
        sums = survey(block, self.name, self.columns)
        if isinstance(self.part, Updated | Misfit):
            rows = (sums, *rows[1:])
        joined, summed = self.part(block, *rows)
        return (*joined, sums), summed


def survey(block: Any, name: str, columns: tuple[str, ...] = ()) -> Float[Tensor, "b 2"]:
    """The sums of each row and of its squares; entries must be finite and not negative."""
    if scipy.sparse.issparse(block):
        values = torch.from_numpy(block.data)
        if values.numel():
            _check(values, name)
        sums = torch.empty(block.shape[0], 2, dtype=torch.float64)
        ones = np.ones(block.shape[1])
        for rows, piece in _pieces(block):
            sums[rows, 0] = torch.from_numpy(piece @ ones)
            with np.errstate(over="ignore"):  # as of dense blocks
                np.square(piece.data, out=piece.data)
            sums[rows, 1] = torch.from_numpy(piece @ ones)
        return sums
    sums = torch.empty(len(block), 2, dtype=torch.float64, device=block.device)
    real, on_cpu = kernels.real(block.dtype), block.device.type == "cpu"
    large = on_cpu and block.numel() >= _LARGE
    loops = kernels.surveying("sums", real) if large else None
    below: list[float] = []

    def some(start: int, stop: int) -> None:
        """Compiled, in one reading."""
        assert loops is not None
        below.append(loops.sums(real)(block.numpy(), start, stop, sums.numpy()))

    def slowly(start: int, stop: int) -> None:
        for rows in _cut(start, stop, block):
            entries = block[rows].double()
            below.append(float(entries.amin()))
            sums[rows] = torch.stack([entries.sum(dim=1), entries.square().sum(dim=1)], 1)

    share(slowly if loops is None else some, len(block), work=block.numel() if on_cpu else 0)
    if not (math.isfinite(float(sums[:, 0].sum())) and min(below, default=0.0) >= 0):
        _check(block, name, columns)
    return sums


def _cut(start: int, stop: int, block: Tensor) -> Iterator[slice]:
    """Rows of a block, in pieces that stay in a cache, or keep a GPU busy."""
    piece = _PIECE if block.device.type == "cpu" else _FAR_PIECE
    step = max(1, piece // block.shape[1])
    return (slice(a, min(a + step, stop)) for a in range(start, stop, step))


def _pieces(block: Any) -> Iterator[tuple[slice, Any]]:
    """A few rows of a CSR block at a time, copied in float64."""
    starts, m = block.indptr, block.shape[0]
    a = 0
    while a < m:
        b = int(np.searchsorted(starts, starts[a] + _PIECE, side="right")) - 1
        b = max(b, a + 1)
        at = slice(starts[a], starts[b])
        parts = block.data[at].astype(np.float64), block.indices[at], starts[a : b + 1] - starts[a]
        yield slice(a, b), scipy.sparse.csr_array(parts, shape=(b - a, block.shape[1]))
        a = b


def _check(values: Tensor, name: str, columns: tuple[str, ...] = ()) -> None:
    low, high = (float(bound) for bound in values.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = ~values.isfinite()
        raise ValueError(
            f"{name} has {int(bad.sum())} entries that are NaN or infinite{_where(bad, columns)}; "
            "all must be finite: remove or impute them first"
        )
    if low < 0:
        bad = values < 0
        raise ValueError(
            Sentence(
                "Negative values in data {passed} to NMF: {name} has {count} entries below zero "
                "(the least is {low:g}){where} and it needs entries of at least 0: shift or clip "
                "them first",
                name=name,
                count=int(bad.sum()),
                low=low,
                where=_where(bad, columns),
            )
        )


def _where(bad: Tensor, columns: tuple[str, ...]) -> str:
    """The first column with such entries, where columns have names."""
    return f", in column {columns[int(bad.any(dim=0).int().argmax())]!r}" if columns else ""


def _sq_error(
    block: Any, c: float, squares: float, W: Tensor, H: Tensor, VH: Tensor
) -> Float[Tensor, ""]:
    """‖W Hᵀ − c·block‖² from VH and the squares, or where few digits are left, from entries."""
    norm = torch.tensor(c * c * squares, dtype=torch.float64, device=W.device)
    error = norm - 2 * inner(VH, W) + inner(W.mT @ W, H.mT @ H)
    if bool(error >= _RESOLVED[W.dtype] * norm):
        return error
    if not scipy.sparse.issparse(block):
        error = torch.zeros_like(norm)
        for rows in _cut(0, len(block), block):
            residual = torch.addmm(block[rows], W[rows], H.mT, beta=-c)
            error += torch.linalg.vector_norm(residual, dtype=torch.float64) ** 2
        return error
    W, H = W.double(), H.double()
    both = sum(inner(times(some, H), W[rows]) for rows, some in _pieces(block))
    return (norm + inner(W.mT @ W, H.mT @ H) - 2 * c * both).clamp(min=0)
