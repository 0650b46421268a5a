"""Arrays become a Matrix; wrong ones raise an error that says what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse
import torch

from factormer.data import Dense, Matrix, Observed, Sparse, checked
from factormer.data.dask import distributed_of, is_dask
from factormer.data.factors import Factors
from factormer.data.frame import Labelled
from factormer.data.memory import as_bytes, bytes_on
from factormer.data.outofcore import blocks_of
from factormer.data.sources import Source, array_source, source_of
from factormer.data.unwrapped import unwrapped
from factormer.sentence import Option, Sentence

_COPIES = 3  # of V that a fit in memory makes: as stored, divided by its mean, in float32
_THERE = 2.6  # the same on a GPU, where what is stored in halves may be left out
_ALIGNED = 16  # bytes at multiples of which memory that was asked for begins


def as_tensor(values: Any, *, name: str, device: str | torch.device | None) -> torch.Tensor:
    """A floating tensor from anything array-like: float32 stays, all else becomes float64."""
    is_tensor = isinstance(values, torch.Tensor)
    if is_sparse(values):
        raise ValueError(
            Sentence(
                "{name} is sparse; it must be dense: pass {array}.toarray() or .to_dense()",
                name=Option(name),
                array=name,
            )
        )
    if is_tensor:
        tensor = values.detach()
    else:
        array = _unmasked(values) if isinstance(values, np.ma.MaskedArray) else _array(values)
        if array.dtype.kind not in "biuf":
            raise ValueError(
                Sentence(
                    "{name} holds {dtype} values; it must hold real numbers",
                    name=Option(name),
                    dtype=array.dtype,
                )
            )
        array = np.asarray(array, _float_type(array.dtype), order="C")
        backwards = any(stride < 0 for stride in array.strides)  # along an axis of one entry
        if backwards or not array.flags.writeable:
            array = array.copy()
        tensor = torch.from_numpy(array)
    if tensor.is_complex():
        raise ValueError(
            Sentence("{name} holds complex values; it must hold real numbers", name=Option(name))
        )
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.double()
    tensor = aligned(tensor)
    return tensor if device is None else tensor.to(as_device(device))


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy where it begins at an odd place in memory, as a slice may.

    Some products of BLAS round by the place, and the same numbers are to have one factorization.
    """
    odd = tensor.device.type == "cpu" and tensor.data_ptr() % _ALIGNED
    return tensor.clone() if odd else tensor


def _array(values: Any) -> np.ndarray:
    """Return an array; of pandas with nullable columns, with NaN where it has NA."""
    if hasattr(values, "to_numpy"):
        kinds = getattr(values, "dtypes", ())
        kinds = kinds if isinstance(kinds, Iterable) else (kinds,)  # a Series has one
        if any(_is_nullable(kind) for kind in kinds):
            return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(values)


def _is_nullable(kind: Any) -> bool:
    """Whether a column of pandas may hold NA beside numbers."""
    return getattr(kind, "na_value", None) is not None and getattr(kind, "kind", "O") in "biuf"


def _unmasked(values: np.ma.MaskedArray) -> np.ndarray:
    """A masked array with NaN where it is masked: an entry that is not known."""
    if values.dtype.kind not in "biuf" or not np.ma.is_masked(values):
        return np.asarray(values)
    array = np.asarray(values, _float_type(values.dtype))
    return np.where(np.ma.getmaskarray(values), np.nan, array).astype(array.dtype)


def as_device(name: Any) -> torch.device:
    """A device that this machine has."""
    if not isinstance(name, str | torch.device) or name == "gpus":
        raise ValueError(
            Sentence(
                "{device} is {given!r}; it must be one device here, such as 'cpu' or 'cuda:0' "
                "(several, or 'gpus' for all, are for factorize_many)",
                given=name,
            )
        )
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # which fails for "meta"
    except (RuntimeError, AssertionError) as error:  # the latter where torch is built without CUDA
        raise ValueError(
            Sentence(
                "{device} is {given!r}, which is not on this machine; choose 'cpu', or 'cuda' "
                "where torch finds a GPU",
                given=str(name),
            )
        ) from error
    if device.type == "cuda" and device.index is None:  # or it would be another one than cuda:0
        return torch.device("cuda", torch.cuda.current_device())
    return device


def like(V: Any) -> Callable[[torch.Tensor], Any]:
    """How to return results: as tensors if V is one, and as numpy arrays otherwise.

    It knows the labels of a DataFrame.
    """
    if type(V) is np.ndarray:
        return to_numpy
    if isinstance(V, torch.Tensor | Dense | Sparse | Observed):
        return torch.Tensor.detach
    return Labelled.of(V) or to_numpy


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return the numbers as a numpy array."""
    return tensor.numpy(force=True)


def _float_type(dtype: np.dtype) -> type:
    return np.float32 if dtype == np.float32 else np.float64


def fits(source: Source, memory_limit: Any = None) -> bool:
    """Whether a fit of all of it in memory keeps within the limit."""
    return _COPIES * source.nbytes <= as_bytes(memory_limit)


def brought(V: Any, memory_limit: Any = None, *, device: Any = None) -> Any:
    """V as it is, or loaded from its file or store; as `Blocks` if it would not fit into memory.

    If a GPU is named, that is its memory, and blocks travel there.
    """
    V = unwrapped(V)
    there = None if device is None else as_device(device)
    limit = as_bytes(memory_limit)
    if is_dask(V):
        return distributed_of(V, memory_limit)
    source = source_of(V)
    if there is not None and there.type == "cuda":
        return _brought_to(there, V, source, memory_limit)
    if source is None:
        return V
    if fits(source, limit):
        return V if isinstance(V, np.memmap) else source.read(0, source.shape[0])
    return blocks_of(source, memory_limit)


def _brought_to(device: torch.device, V: Any, source: Source | None, memory_limit: Any) -> Any:
    """V itself if a fit of it keeps within the memory of a GPU, and blocks that travel if not."""
    inside = array_source(V) if source is None else source
    if inside is None or _THERE * inside.nbytes <= bytes_on(device, memory_limit):
        if source is None or isinstance(V, np.memmap):
            return V
        return source.read(0, source.shape[0])
    if inside.is_sparse:
        raise ValueError(
            Sentence(
                "{device} is {given!r}, and V, a {kind}, is larger than its memory or "
                "{memory_limit} allows; sparse data is read in blocks on the CPU alone: leave "
                "{device} out",
                given=str(device),
                kind=inside.kind,
            )
        )
    return blocks_of(inside, memory_limit, sent_to=device)


def as_matrix(V: Any, *, device: str | torch.device | None = None) -> Dense | Sparse:
    """The data as a Matrix: two axes, or more for a stack; finite and not negative."""
    if isinstance(V, Dense | Sparse):  # it was checked before
        return V
    if is_sparse(V):
        return _as_sparse(V, device)
    entries = as_tensor(V, name="V", device=device)
    return as_dense(entries, extremes(entries))


def as_dense(entries: torch.Tensor, bounds: tuple[float, float]) -> Dense:
    """The tensor of `as_tensor` as a Matrix, with the same checks; `bounds` are its `extremes`."""
    check_shape(tuple(entries.shape))
    _check_data(entries, bounds)
    return Dense(entries)


def is_sparse(values: Any) -> bool:
    """Whether these are scipy's or torch's sparse data."""
    is_tensor = isinstance(values, torch.Tensor)
    return scipy.sparse.issparse(values) or (is_tensor and values.layout != torch.strided)


def _as_sparse(V: Any, device: str | torch.device | None) -> Sparse:
    if isinstance(V, torch.Tensor) and device is None:
        device = V.device
    V = checked(V, "V")
    if V.dtype.kind not in "biuf":
        raise ValueError(f"V holds {V.dtype} values; it must hold real numbers")
    check_shape(V.shape)
    rows = V.tocsr().astype(_float_type(V.dtype), copy=False)
    arrays = (rows.data, rows.indices, rows.indptr)
    csr = scipy.sparse.csr_array(arrays, rows.shape)  # without cached flags and unused entries
    arrays = (csr.data, csr.indices, csr.indptr)
    if not (csr.has_canonical_format and all(_is_plain(a) for a in arrays)):
        csr = csr.copy()
        csr.sum_duplicates()
    values = torch.from_numpy(csr.data)
    _check_data(values, extremes(values))
    return Sparse.of(csr, None if device is None else as_device(device))


def _is_plain(array: np.ndarray) -> bool:
    """Whether torch can share its memory."""
    return array.flags.writeable and array.flags.c_contiguous


def check_shape(shape: tuple[int, ...]) -> None:
    """At least two axes, none of them empty."""
    if len(shape) < 2 or 0 in shape:
        raise ValueError(
            f"V has shape {shape}; it must be a matrix (or a stack of matrices) "
            "with at least one row and one column"
        )


def as_factors(W: Any, H: Any, V: Matrix, rank: int) -> Factors:
    """A custom start, which must fit V and the rank."""
    *batch, m, n = V.shape
    pair = []
    for name, values, size in (("W", W, m), ("H", H, n)):
        if values is None:
            raise ValueError(f"{name} is missing; a start is given by both W and H")
        F = as_tensor(values, name=name, device=V.device).to(V.dtype)
        if F.shape != (*batch, size, rank):
            raise ValueError(
                f"{name} has shape {tuple(F.shape)}; for this V and rank {rank} the start must "
                f"have shape {(*batch, size, rank)} (V ≈ W Hᵀ, so H is n×r)"
            )
        _check_entries(F, name, extremes(F))
        pair.append(F)
    return Factors(*pair)


def check_mean(mean: torch.Tensor, reach: float = 1.0) -> None:
    """Check that V / mean, which is factorized, is representable; with `reach`, V^(1/reach)."""
    info = torch.finfo(mean.dtype)
    least, most = info.tiny**reach, info.max**reach / 1e3
    if not all(least <= value < most for value in mean.flatten().tolist()):
        raise ValueError(
            f"V is too large or too small for {mean.dtype} (its mean is {mean.tolist()}): "
            "divide it by a number of its size"
        )


def check_start(x: Factors) -> Factors:
    """Check that a start for V / mean is representable."""
    for name, F in x._asdict().items():
        if not bool(F.isfinite().all()):
            raise ValueError(
                f"the start {name} is too large relative to V for {F.dtype}: V is divided by its "
                f"mean: divide {name} by a number of its size"
            )
    return x


def check_unit(unit: torch.Tensor, mean: torch.Tensor, degree: float) -> torch.Tensor:
    """Check that mean^(degree/2), the unit of reported errors, is representable."""
    if not all(0 < value < math.inf for value in unit.flatten().tolist()):
        raise ValueError(
            f"V has mean {mean.tolist()}, whose power {degree / 2:g}, the unit of errors under "
            "this loss, is beyond float64: divide V by its mean"
        )
    return unit


def extremes(tensor: torch.Tensor) -> tuple[float, float]:
    """The least and the largest entry, NaN if an entry is NaN; zeros where there is none."""
    if not tensor.numel():
        return 0.0, 0.0
    low, high = tensor.aminmax()
    return low.item(), high.item()


def _check_data(V: torch.Tensor, bounds: tuple[float, float]) -> None:
    most, least = _check_entries(V, "V", bounds), torch.finfo(V.dtype).tiny
    if 0 < most < least:
        raise ValueError(
            f"V has {most:g} as its largest entry; {V.dtype} has full precision from {least:.2g} "
            f"on: multiply V by {1 / least:.0e}, or by another number that brings it there"
        )


def _check_entries(tensor: torch.Tensor, name: str, bounds: tuple[float, float]) -> float:
    """Finite and not negative; the largest of them."""
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = int((~tensor.isfinite()).sum())
        raise ValueError(
            Sentence(
                "{name} has {bad} entries that are NaN or infinite; all must be finite: remove or "
                "impute them first, or {use NMF(missing='nan')} where NaN is an unknown entry",
                name=name,
                bad=bad,
            )
        )
    if low < 0:
        bad = int((tensor < 0).sum())
        raise ValueError(
            Sentence(
                "Negative values in data {passed} to NMF: {name} has {bad} entries below zero (the "
                "least is {low:g}) and it needs entries of at least 0: shift or clip them first",
                name=name,
                bad=bad,
                low=low,
            )
        )
    return high
