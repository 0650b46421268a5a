"""Sparse data of scipy and torch: its indices are checked before they are used.

Compiled code does not check indices: one out of range would read or write foreign memory. Each
kind is checked once, in one pass over its indices, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse
import torch

from factormer.sentence import Option, Sentence

Array = np.ndarray
_MOST = 2**31 - 1  # rows, or columns, that compiled loops can index


def checked(values: Any, name: str) -> Any:
    """Return a sparse matrix as one of scipy's, and refuse it if an index is out of range."""
    if len(values.shape) != 2:
        raise ValueError(
            Sentence(
                "{name} is sparse and has shape {shape}; a sparse {name} must be one matrix",
                name=Option(name),
                shape=tuple(values.shape),
            )
        )
    if max(values.shape) > _MOST:
        raise ValueError(
            Sentence(
                "{name} is sparse and has shape {shape}; it may have at most {most} rows and "
                "columns: leave out those that are empty",
                name=Option(name),
                shape=tuple(values.shape),
                most=_MOST,
            )
        )
    try:
        if isinstance(values, torch.Tensor):
            return _of_torch(values.detach().cpu(), name)
        _CHECKS[values.format](values, name)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
        raise _wrong(name, f"lacks a part, or has one of a wrong type ({error})") from error
    return values


def _wrong(name: str, what: str) -> ValueError:
    return ValueError(
        Sentence(
            "{name} is a sparse matrix that {what}; build it again from its values, rows and "
            "columns (scipy.sparse.coo_array)",
            name=Option(name),
            what=what,
        )
    )


def _check_indices(indices: Array, size: int, name: str, what: str) -> None:
    """One axis of whole numbers from 0 to size − 1."""
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise _wrong(
            name, f"has {what} of type {indices.dtype} and shape {indices.shape}, not a vector of "
            "whole numbers"
        )  # fmt: skip
    if len(indices) and not (indices.min() >= 0 and indices.max() < size):
        found = f"from {indices.min()} to {indices.max()}"
        raise _wrong(name, f"has {what} {found}, which must be from 0 to {size - 1}")


def _check_count(values: Array, count: int, name: str, what: str) -> None:
    if len(values) != count:
        raise _wrong(name, f"has {len(values)} values and {count} {what}, which must be as many")


def _check_compressed(
    starts: Array, indices: Array, values: Array, shape: tuple[int, int], name: str
) -> None:
    """Check that starts[i] … starts[i + 1] are row i; entries beyond the last are never read."""
    n_rows, n_columns = shape
    _check_count(values, len(indices), name, "indices")
    _check_indices(starts, len(indices) + 1, name, "row pointers (indptr)")
    if len(starts) != n_rows + 1:
        raise _wrong(name, f"has {len(starts)} row pointers (indptr) for {n_rows} rows: one more")
    if starts[0] != 0 or bool((starts[1:] < starts[:-1]).any()):
        raise _wrong(name, "has row pointers (indptr) that do not rise from 0")
    _check_indices(indices[: int(starts[-1])], n_columns, name, "indices")


def _check_coordinates(
    coordinates: Sequence[Array], values: Array, shape: tuple[int, ...], name: str
) -> None:
    for indices, size, what in zip(coordinates, shape, ("rows", "columns"), strict=True):
        _check_indices(indices, size, name, what)
        _check_count(values, len(indices), name, what)


def _check_csr(V: Any, name: str) -> None:
    _check_compressed(V.indptr, V.indices, _vector(V.data, name), V.shape, name)


def _check_csc(V: Any, name: str) -> None:
    _check_compressed(V.indptr, V.indices, _vector(V.data, name), V.shape[::-1], name)


def _check_bsr(V: Any, name: str) -> None:
    blocks = V.data.shape[1:]
    if len(blocks) != 2 or 0 in blocks or any(m % k for m, k in zip(V.shape, blocks, strict=True)):
        raise _wrong(name, f"has blocks of shape {blocks}, which do not fill the shape {V.shape}")
    m, n = (size // k for size, k in zip(V.shape, blocks, strict=True))
    _check_compressed(V.indptr, V.indices, V.data, (m, n), name)


def _check_coo(V: Any, name: str) -> None:
    _check_coordinates((V.row, V.col), _vector(V.data, name), V.shape, name)


def _check_dia(V: Any, name: str) -> None:
    m, n = V.shape
    _check_count(V.data, len(V.offsets), name, "diagonals")
    if V.data.ndim != 2 or len(np.unique(V.offsets)) < len(V.offsets):
        raise _wrong(name, "has a diagonal twice, or values that are not rows of diagonals")
    _check_indices(V.offsets + m - 1, m + n - 1, name, f"diagonals (numbered from {1 - m} on)")


def _check_lil(V: Any, name: str) -> None:
    lengths = [[len(row) for row in rows] for rows in (V.rows, V.data)]
    if lengths[0] != lengths[1] or len(V.rows) != V.shape[0]:
        raise _wrong(name, f"has rows of other lengths than their values, or not {V.shape[0]} rows")
    _check_indices(_flat(V.rows), V.shape[1], name, "columns")


def _check_dok(V: Any, name: str) -> None:
    keys = _flat(V.keys()).reshape(-1, 2)
    _check_coordinates(tuple(keys.T), keys, V.shape, name)


_CHECKS: dict[str, Callable[[Any, str], None]] = {
    "csr": _check_csr,
    "csc": _check_csc,
    "bsr": _check_bsr,
    "coo": _check_coo,
    "dia": _check_dia,
    "lil": _check_lil,
    "dok": _check_dok,
}


def _vector(values: Array, name: str) -> Array:
    if values.ndim != 1:
        raise _wrong(name, f"has values of shape {values.shape}, not a vector")
    return values


def _flat(lists: Any) -> Array:
    """The whole numbers of many lists; numbers that are not whole are refused by their type."""
    found = np.asarray(list(chain.from_iterable(lists)))
    return found if len(found) else found.astype(np.int64)


def _of_torch(V: torch.Tensor, name: str) -> Any:
    """As scipy's, over the same memory; torch's own conversions do not check indices either."""
    if V.dense_dim():
        raise ValueError(
            f"{name} is a sparse tensor with {V.dense_dim()} dense axes; both must be sparse: pass "
            f"{name}.to_dense().to_sparse()"
        )
    if V.layout == torch.sparse_coo:
        values, (rows, columns) = _numbers(V._values()), V._indices().numpy()
        _check_coordinates((rows, columns), values, tuple(V.shape), name)
        return scipy.sparse.coo_array((values, (rows, columns)), shape=tuple(V.shape))
    by_rows = V.layout in (torch.sparse_csr, torch.sparse_bsr)
    starts = V.crow_indices() if by_rows else V.ccol_indices()
    indices = V.col_indices() if by_rows else V.row_indices()
    values = _numbers(V.values())
    size = (V.shape[0], V.shape[1]) if by_rows else (V.shape[1], V.shape[0])
    if values.ndim == 3:  # blocks
        m, n = (s // k for s, k in zip(size, _turned(values.shape[1:], by_rows), strict=True))
        _check_compressed(starts.numpy(), indices.numpy(), values, (m, n), name)
        return checked(V.to_sparse_coo(), name)
    _check_compressed(starts.numpy(), indices.numpy(), values, size, name)
    make = scipy.sparse.csr_array if by_rows else scipy.sparse.csc_array
    return make((values, indices.numpy(), starts.numpy()), shape=tuple(V.shape))


def _turned(pair: tuple[int, ...], as_it_is: bool) -> tuple[int, ...]:
    return pair if as_it_is else pair[::-1]


def _numbers(values: torch.Tensor) -> Array:
    """As a numpy array; numpy has no bfloat16."""
    half = values.dtype in (torch.float16, torch.bfloat16)
    return (values.double() if half else values).numpy()
