"""All that the rest of the package may ask of the data V.

Solvers of the squared error, starts and networks ask a `Matrix` for products, errors and row
blocks, and never what kind it is: sparse, compressed or distributed data is another class with the
same methods. Solvers of other losses ask where they go through entries.
Shapes: m rows, n columns, r rank, *b batch axes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.data.factors import Factors

A = TypeVar("A")
_MANY = 2**16  # numbers of which each product may be rounded


class Normal(NamedTuple):
    """The normal equations of min ‖W Hᵀ − V‖² over H: all that an H-update may know of V."""

    VtW: Float[Tensor, "*b n r"]
    WtW: Float[Tensor, "*b r r"]


@runtime_checkable
class Matrix(Protocol):
    """A nonnegative matrix V (m, n), or a stack of them.

    `rows` and `cols` say which rows and columns are real where a stack is padded with zeros to
    equal shape (None: all of them). Padding is exact for products, errors and solvers, since zeros
    stay zero; only attention and counts have to look. `sq_norm` is ‖V‖² in float64, and `work` the
    number of multiplications in a product with one column.
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
    def sq_norm(self) -> Float[Tensor, "*b"]: ...
    def total(self) -> Float[Tensor, "*b"]: ...
    def work(self) -> float | Float[Tensor, "*b"]: ...
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
    if V.rows is None and V.cols is None:
        *batch, m, n = V.shape
        return torch.full(batch, m * n, dtype=V.dtype, device=V.device)
    return n_rows(V) * n_rows(V.T)


def zero_padding(
    F: Float[Tensor, "*b m r"], real: Bool[Tensor, "*b m"] | None
) -> Float[Tensor, "*b m r"]:
    """Set the rows that only pad a stack to zero."""
    return F if real is None else F * real[..., None]


def inner(A: Float[Tensor, "*b m r"], B: Float[Tensor, "*b m r"]) -> Float[Tensor, "*b"]:
    """⟨A, B⟩, accumulated in float64: a Gram expansion of the loss has few digits to lose."""
    if A.dim() == 2 and A.dtype == torch.float64 and A.is_contiguous() and B.is_contiguous():
        return torch.dot(A.view(-1), B.view(-1))
    if A.is_cuda and A.numel() > _MANY:  # whose rounding errors cancel
        return (A * B).sum(dim=(-2, -1), dtype=torch.float64)
    return (A.double() * B.double()).sum(dim=(-2, -1))


def turned(whole: A, make: Callable[[], A]) -> A:
    """The transpose of a value, which `make` makes once; its own transpose is the value.

    It refers to the value weakly: in a cycle, both would wait for the garbage collector.
    """
    kept: dict[str, Any] = whole.__dict__
    origin = kept["_origin"]() if "_origin" in kept else None
    if origin is not None:
        return origin
    if "_turned" not in kept:
        kept["_turned"] = make()
        kept["_turned"].__dict__["_origin"] = weakref.ref(whole)
    return kept["_turned"]
