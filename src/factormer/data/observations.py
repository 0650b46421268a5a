"""Which entries of V are known, and how much each counts: NaN, masks, weights, absent ratings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
import torch

from factormer.data import Blocks, Dense, Matrix, Observed, Sparse, checked, stored
from factormer.data.intake import (
    as_dense,
    as_device,
    as_matrix,
    as_tensor,
    brought,
    check_shape,
    extremes,
    is_sparse,
)
from factormer.sentence import Option, Sentence

_FEW = 0.3  # share of known entries below which a dense V is better stored as a list of them


def observe(
    V: Any,
    *,
    mask: Any = None,
    weights: Any = None,
    missing: str | None = None,
    device: str | torch.device | None = None,
    memory_limit: Any = None,
) -> Matrix:
    """V, with the weights of its entries if some are unknown or weights differ."""
    if missing not in (None, "zeros"):
        raise ValueError(
            Sentence(
                "{missing} is {given!r}; choose 'zeros' (zeros of V are not known), or None",
                given=missing,
            )
        )
    if isinstance(V, Dense | Sparse | Observed | Blocks):  # it was checked before
        return V
    V = brought(V, memory_limit, device=device)
    known = None if weights is None and mask is None and missing is None else True
    if isinstance(V, Blocks):
        if known is not None:
            raise ValueError(
                Sentence(
                    "V is read in blocks, for which {mask}, {weights} and {missing} are not "
                    "supported: leave them out, or raise {memory_limit} so that V fits into memory"
                )
            )
        return V
    if is_sparse(V):
        return (
            as_matrix(V, device=device)
            if known is None
            else _sparse(V, mask, weights, missing, device)
        )
    entries = as_tensor(V, name="V", device=device)
    if known is None:
        bounds = extremes(entries)
        if not math.isnan(bounds[0]):
            return as_dense(entries, bounds)
    absent = entries.isnan()
    omega = torch.where(absent, 0.0, 1.0).to(entries)
    if missing:
        omega = omega * (entries != 0)
    if mask is not None:
        omega = omega * _dense(mask, "mask", entries)
    if weights is not None:
        omega = omega * _dense(weights, "weights", entries)
    _check_some(omega)
    largest = torch.where(omega > 0, entries, 0.0).max()
    filler = torch.where((largest > 0) & largest.isfinite(), largest, 1.0)
    entries = torch.where(omega > 0, entries, filler)  # finite, positive, and of the size of V
    V = as_matrix(entries)
    if bool((omega == 1).all()):
        return V
    plain = entries.dim() == 2 and entries.device.type == "cpu"
    if plain and float((omega > 0).double().mean()) < _FEW:
        return stored(entries, omega)
    return Observed(Dense(entries), omega)


def _dense(given: Any, name: str, V: torch.Tensor) -> torch.Tensor:
    """A weight for each entry of V from an array of its shape, or from one for each row."""
    check_shape(tuple(V.shape))
    if is_sparse(given):
        given = checked(given, name).toarray()
    array = as_tensor(given, name=name, device=V.device).to(V.dtype)
    rows = array.dim() == 1 and len(array) == V.shape[-2]
    if not rows and array.shape != V.shape:
        raise ValueError(
            Sentence(
                "{name} has shape {shape}; it must have that of V, {wanted}, or be one number for "
                "each of its {m} rows",
                name=Option(name),
                shape=tuple(array.shape),
                wanted=tuple(V.shape),
                m=V.shape[-2],
            )
        )
    _check_weights(array, name)
    if name == "mask":
        _check_mask(array)
    return array[:, None].expand(V.shape) if rows else array


def _check_mask(array: torch.Tensor) -> None:
    """Refuse numbers between 0 and 1, which may have been meant as weights."""
    other = array[(array != 0) & (array != 1)]
    if len(other):
        raise ValueError(
            Sentence(
                "{mask} has {count} entries that are neither 0 nor 1 (one is {one:g}); a mask says "
                "which entries are known, and weights how much each counts: pass it as {weights} "
                "if that is meant",
                count=len(other),
                one=float(other[0]),
            )
        )


def _check_weights(array: torch.Tensor, name: str) -> None:
    if not bool(array.isfinite().all()) or not bool((array >= 0).all()):
        bad = int((~(array >= 0) | ~array.isfinite()).sum())
        raise ValueError(
            Sentence(
                "{name} has {bad} entries that are negative, NaN or infinite; a weight is a finite "
                "number of at least 0, and 0 for an entry that is not known",
                name=Option(name),
                bad=bad,
            )
        )


def _check_some(omega: torch.Tensor) -> None:
    if not bool((omega > 0).any()):
        raise ValueError(
            Sentence("no entry of V is known: {mask}, {weights} or {missing} leave none to fit")
        )


def _sparse(
    V: Any, mask: Any, weights: Any, missing: str | None, device: str | torch.device | None
) -> Matrix:
    """The entries that weights or mask store are known; without them, those that V stores."""
    matrix = as_matrix(V)
    at = matrix.by_rows  # pyright: ignore[reportAttributeAccessIssue]
    m, n = matrix.shape
    csr = scipy.sparse.csr_array((at.values.numpy(), at.columns.numpy(), at.starts.numpy()), (m, n))
    rows = None
    for name, given in (("mask", mask), ("weights", weights)):
        if given is None or is_sparse(given):
            if given is not None and tuple(given.shape) != (m, n):
                raise ValueError(
                    Sentence(
                        "{name} has shape {shape}; it must have that of V, {wanted}",
                        name=Option(name),
                        shape=tuple(given.shape),
                        wanted=(m, n),
                    )
                )
            continue
        array = as_tensor(given, name=name, device=None)
        if array.shape != (m,):
            raise ValueError(
                Sentence(
                    "V is sparse and {name} is dense, of shape {shape}: pass sparse {name}, whose "
                    "entries that are not stored count as 0 (not known), one number for each of "
                    "the {m} rows, or {V.toarray()}",
                    name=Option(name),
                    shape=tuple(array.shape),
                    m=m,
                )
            )
        _check_weights(array, name)
        if name == "mask":
            _check_mask(array)
        rows = array if rows is None else rows * array
    both = {"mask": mask, "weights": weights}
    chosen = [_csr(g, name) for name, g in both.items() if g is not None and is_sparse(g)]
    if mask is not None and is_sparse(mask):
        _check_mask(torch.from_numpy(chosen[0].data))
    if not chosen and not missing:
        raise ValueError(
            Sentence(
                "V is sparse and {weights} is one number for each row: use {missing=zeros} if "
                "zeros are not known, or multiply V and W by it yourself (docs/losses.md)"
            )
        )
    pattern = chosen[0] if chosen else csr.copy()
    for other in chosen[1:]:
        pattern = pattern.multiply(other).tocsr()
    if not chosen:
        pattern.data = np.ones_like(pattern.data)
    pattern.eliminate_zeros()
    if missing:
        pattern = pattern.multiply(csr != 0).tocsr()
    pattern.sort_indices()
    omega = torch.from_numpy(pattern.data.astype(csr.dtype))
    if len(omega):
        _check_weights(omega, "weights")
    values = _lookup(csr, pattern)
    if rows is not None:
        counts = torch.from_numpy(np.diff(pattern.indptr)).long()
        omega = omega * torch.repeat_interleave(rows.to(omega.dtype), counts)
    _check_some(omega)
    shaped = scipy.sparse.csr_array((values, pattern.indices, pattern.indptr), (m, n))
    where = None if device is None else as_device(device)
    return Observed(Sparse.of(shaped, where), omega.to(where))


def _csr(given: Any, name: str) -> Any:
    csr: Any = scipy.sparse.csr_array(checked(given, name).tocsr()).astype(np.float64)
    csr.sum_duplicates()
    return csr


def _lookup(csr: Any, pattern: Any) -> np.ndarray:
    """The values of csr where the pattern stores something."""
    n = csr.shape[1]
    theirs, ours = (_keys(A, n) for A in (csr, pattern))
    values = np.zeros(len(ours), csr.dtype)
    at = np.searchsorted(theirs, ours)
    inside = at < len(theirs)
    inside[inside] = theirs[at[inside]] == ours[inside]
    values[inside] = csr.data[at[inside]]
    return values


def _keys(A: Any, n: int) -> np.ndarray:
    rows = np.repeat(np.arange(A.shape[0], dtype=np.int64), np.diff(A.indptr))
    return rows * n + A.indices
