"""Sources of a matrix that is not in memory: files and stores that give rows a … b on request."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch

from factormer.data.cached import rows_of

_REAL = (torch.float32, torch.float64)
_STORES = ("h5py", "zarr", "anndata")  # packages whose arrays are read by slices of rows
_DECODED = 64  # columns of a Parquet file that are decoded at a time
_PIECE, _COPIES = 2**22, 3  # bytes that Zarr is asked for at a time, and copies of a chunk
_FREE = 2**23  # bytes of it that count as those of the library itself
_SLOTS, _CACHE = 521, 2**20  # of HDF5, whose own is 8 MB for each dataset
_OF_CHUNK, _OF_COLUMN = 1000, 2500  # bytes that pyarrow holds of its footer (measured)
_FORMATS = ("encoding-type", "h5sparse_format", "format")
_SHAPES = ("shape", "h5sparse_shape")


@dataclass(frozen=True, eq=False)
class Source:
    """A matrix outside of memory: `read(a, b)` returns its rows a … b, dense or scipy's CSR.

    Rows are stored `step` at a time, so that blocks of a multiple of that are read only once;
    `ends` are the only places where a block may end, if the store does not leave a choice.
    `entries` counts what is stored, zeros or not. `take(a, b, room)`, if there is one, returns
    them in the file cache or read into `room`, which saves a copy; of a sparse store, it takes room
    for entries and for their columns, of type `index`. `file` is where it lies, if known. `columns`
    are their names. `starts` is where the entries of each row of a sparse store begin, and where
    they end. `held` are bytes that it takes itself while it is open.
    """

    read: Callable[[int, int], Any]
    shape: tuple[int, int]
    dtype: np.dtype
    kind: str
    entries: float
    is_sparse: bool = False
    step: int = 1
    ends: tuple[int, ...] | None = None
    take: Callable[[int, int, Any], Any] | None = None
    file: str | None = None
    columns: tuple[str, ...] = ()
    starts: np.ndarray | None = None
    held: float = 0.0
    index: np.dtype | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of an entry as a floating number: float32 stays, all else becomes float64."""
        return 4 if self.dtype == np.float32 else 8

    @property
    def nbytes(self) -> float:
        """Bytes of the whole matrix in memory; a sparse entry has a column, too."""
        return self.entries * (self.itemsize + 8 * self.is_sparse)

    def before(self) -> np.ndarray | None:
        """Bytes of all rows before each row, and of all rows; None where rows are equally long."""
        if self.starts is None:
            return None
        return (self.itemsize + 8) * self.starts + 8 * np.arange(len(self.starts))


def source_of(V: Any) -> Source | None:
    """The source that V is; None where V is no store, but an array like any other."""
    if isinstance(V, Source):
        return V
    found = _source_of(V)
    return found and replace(found, file=_file_of(V) or found.file)


def array_source(V: Any) -> Source | None:
    """A dense matrix in memory as a source, for a device that is too small for it; None else."""
    if isinstance(V, torch.Tensor):
        plain = V.layout == torch.strided and V.device.type == "cpu" and V.dtype in _REAL
        V = V.detach().numpy() if plain else None
    if type(V) is not np.ndarray or V.ndim != 2 or not V.size or V.dtype.kind not in "biuf":
        return None
    found = _sliced(V, "array")
    as_it_is = V.dtype.kind == "f" and V.flags.c_contiguous and V.flags.writeable
    return replace(found, take=lambda a, b, room: V[a:b]) if as_it_is else found


def _file_of(V: Any) -> str | None:
    """The file of a memory map, of a dataset or group of HDF5, or of a backed AnnData."""
    for holder in (V, getattr(V, "file", None), getattr(getattr(V, "group", None), "file", None)):
        name = getattr(holder, "filename", None)
        if isinstance(name, str | os.PathLike) and os.path.isfile(name):
            return os.fspath(name)
    return None


def _source_of(V: Any) -> Source | None:
    package = type(V).__module__.partition(".")[0]
    if isinstance(V, np.memmap) and V.ndim == 2:
        return replace(_sliced(V, "memory-mapped file"), take=rows_of(V))
    if package == "pyarrow" and hasattr(V, "read_row_groups"):
        return _parquet(V)
    if package not in _STORES or isinstance(V, np.ndarray) or scipy.sparse.issparse(V):
        return None  # arrays of a view of an AnnData are in memory
    if package == "h5py" and not V:
        raise ValueError("V is in a file of HDF5 that is closed; open the file again")
    if hasattr(V, "keys") and package in ("h5py", "zarr"):
        return _group(V, package)
    backed = getattr(V, "isbacked", None)
    if backed is not None:  # an AnnData, of which X is meant
        return source_of(getattr(V, "X", None)) if backed else None
    if not (hasattr(V, "shape") and hasattr(V, "dtype")):
        return None
    return _sparse_store(V) if hasattr(V, "to_memory") else _sliced(V, f"{package} array")


def _sliced(V: Any, kind: str) -> Source:
    """An array of two axes that slices of rows are read from."""
    _check(tuple(V.shape), V.dtype, kind)
    m, n = map(int, V.shape)
    chunks = getattr(V, "chunks", None)
    step = int(chunks[0]) if chunks else 1
    dtype, entries = np.dtype(V.dtype), float(m) * n
    found = Source(lambda a, b: np.asarray(V[a:b]), (m, n), dtype, kind, entries, step=step)
    if kind == "zarr array" and chunks:
        held = max(_COPIES * float(np.prod(chunks)) * dtype.itemsize - _FREE, 0.0)
        return replace(found, take=_in_pieces(V, step, int(chunks[1])), held=held)
    if not hasattr(V, "read_direct"):
        return found
    return replace(found, take=_direct(V), held=_decoding(V))  # a dataset of HDF5


def _direct(V: Any) -> Callable[[int, int, Any], Any]:
    """How rows of a dataset of HDF5 are read into an array."""

    def take(a: int, b: int, room: np.ndarray) -> np.ndarray:
        V.read_direct(room, np.s_[a:b])
        return room

    return take


def _in_pieces(V: Any, rows: int, columns: int) -> Callable[[int, int, Any], Any]:
    """How rows of a Zarr array are read into another: a few chunks at a time.

    Zarr decodes all that it is asked for side by side, in threads that keep their memory.
    """
    wide = columns * max(1, _PIECE // (rows * columns * V.dtype.itemsize))

    def take(a: int, b: int, room: np.ndarray) -> np.ndarray:
        for top in range(a, b, rows):
            for left in range(0, room.shape[1], wide):
                at, across = slice(top, min(top + rows, b)), slice(left, left + wide)
                room[at.start - a : at.stop - a, across] = V[at, across]
        return room

    return take


def _decoding(V: Any) -> float:
    """Bytes that HDF5 takes to decode a chunk that its cache has no place for."""
    if V.chunks is None:
        return 0.0
    size = float(np.prod(V.chunks)) * V.dtype.itemsize
    return 2 * size if size > V.id.get_access_plist().get_chunk_cache()[1] else 0.0


def _sparse_store(V: Any) -> Source:
    """A sparse matrix of a backed AnnData, whose slices of rows are scipy's."""
    _check_rows(V.format)
    return _by_rows(lambda a, b: scipy.sparse.csr_array(V[a:b]), V.shape, V.dtype, V.group)


def _by_rows(read: Callable[[int, int], Any], shape: Any, dtype: Any, group: Any) -> Source:
    """A CSR matrix in a store whose group has the array `indptr`."""
    _check(tuple(shape), dtype, "sparse store")
    m, n = map(int, shape)
    starts = np.asarray(group["indptr"][()], np.int64)
    if starts.shape != (m + 1,) or (np.diff(starts) < 0).any():
        raise ValueError(
            f"V, a sparse store of shape {(m, n)}, has {len(starts)} row pointers; they must be "
            f"{m + 1} and must not decrease: write it again as CSR"
        )
    entries = float(starts[-1] - starts[0])
    parts = read, (m, n), np.dtype(dtype), "sparse store", entries, True
    return Source(*parts, starts=starts, held=float(starts.nbytes))


def _group(group: Any, package: str) -> Source:
    """A group with the parts of a CSR matrix, as AnnData writes it; others hold several arrays."""
    keys = sorted(group.keys())
    if package == "h5py" and {"data", "indices", "indptr"} <= set(keys):
        return _compressed(group)
    raise ValueError(
        f"V is a group of {package} with the keys {keys}; it must be one matrix: choose it by its "
        "key, V[key]"
    )


def _compressed(group: Any) -> Source:
    """A group of HDF5 with the parts of a CSR matrix, and with its shape and format."""
    kind, shape = (_told(group, names) for names in (_FORMATS, _SHAPES))
    if kind is None or np.shape(shape) != (2,):
        missing = "format" if kind is None else "shape"
        raise ValueError(
            f"V is a sparse store that does not tell its {missing}; set "
            "V.attrs['encoding-type'] = 'csr_matrix' if indptr is by rows, and V.attrs['shape']"
        )
    _check_rows(kind.decode() if isinstance(kind, bytes) else str(kind))
    m, n = (int(size) for size in shape)
    data, indices = (_thrifty(group, name) for name in ("data", "indices"))

    def read(a: int, b: int) -> Any:
        begin, end = whole.starts[[a, b]].tolist()  # pyright: ignore[reportOptionalSubscript]
        return take(a, b, (np.empty(end - begin, data.dtype), np.empty(end - begin, index)))

    def take(a: int, b: int, room: tuple[np.ndarray, np.ndarray]) -> Any:
        assert whole.starts is not None
        starts = whole.starts[a : b + 1]
        begin, end = int(starts[0]), int(starts[-1])
        pair = tuple(F[: end - begin] for F in room)
        if end > begin:
            for F, stored in zip(pair, (data, indices), strict=True):
                stored.read_direct(F, np.s_[begin:end])
        kind = index if end - begin <= np.iinfo(index).max else np.int64
        parts = (*pair, (starts - begin).astype(kind))  # of one type, or they are copied
        return scipy.sparse.csr_array(parts, shape=(b - a, n))

    index = np.dtype(indices.dtype)
    plain = _by_rows(read, (m, n), data.dtype, group)
    held = plain.held + _decoding(data) + _decoding(indices)
    whole = replace(plain, take=take, index=index, held=held)
    return whole


def _thrifty(group: Any, name: str) -> Any:
    """A dataset of HDF5 that keeps few of its chunks: rows are read in order, and each once."""
    h5py: Any = sys.modules["h5py"]  # which made the group
    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    access.set_chunk_cache(_SLOTS, _CACHE, 1.0)
    return h5py.Dataset(h5py.h5d.open(group.id, name.encode(), access))


def _told(group: Any, names: tuple[str, ...]) -> Any:
    """Return what a group says of itself under one of these names, as attribute or array."""
    for name in names:
        if name in group.attrs:
            return group.attrs[name]
        if name in group:
            return group[name][()]
    return None


def _parquet(file: Any) -> Source:
    """The columns of a Parquet file, all of which must be numbers; blocks are row groups.

    A null becomes NaN, an entry that is not known. A few columns are decoded at a time.
    """
    schema, about = file.schema_arrow, file.metadata
    names = [name for name in schema.names if not name.startswith("__index_level_")]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(
            f"V, a Parquet file, has several columns of the name {twice[0]!r}; rename them"
        )
    kinds = [_number(schema.field(name)) for name in names]
    kind = np.result_type(*kinds) if names else np.dtype(float)
    m, n = about.num_rows, len(names)
    _check((m, n), kind, "Parquet file")
    sizes = [about.row_group(k).num_rows for k in range(about.num_row_groups)]
    ends = np.cumsum([0, *sizes]).tolist()
    dtype = np.dtype(np.float32 if kind == np.float32 else np.float64)

    def take(a: int, b: int, room: np.ndarray) -> np.ndarray:
        groups = list(range(ends.index(a), ends.index(b)))
        for first in range(0, n, _DECODED):
            some = slice(first, first + _DECODED)
            table = file.read_row_groups(groups, columns=names[some], use_threads=False)
            piece = np.empty((table.num_columns, b - a), dtype)
            for row, column, kind in zip(piece, table.columns, kinds[some], strict=True):
                at = 0
                for chunk in column.chunks:
                    row[at : at + len(chunk)] = _decoded(chunk, kind)
                    at += len(chunk)
            room[:, some] = piece.T
        return room

    return Source(
        lambda a, b: take(a, b, np.empty((b - a, n), dtype)),
        (m, n),
        dtype,
        "Parquet file",
        float(m) * n,
        ends=tuple(sorted(set(ends))),  # row groups may be empty
        take=take,
        columns=tuple(names),
        held=max(n * (_OF_COLUMN + float(_OF_CHUNK) * len(sizes)) - _FREE, 0.0),
    )


def _decoded(column: Any, kind: np.dtype) -> np.ndarray:
    """A piece of a column as numpy's. pyarrow's own way imports pandas, some 30 MB."""
    if column.null_count or kind.kind == "b" or not len(column):
        return column.to_numpy(zero_copy_only=False).astype(float)
    values = np.frombuffer(column.buffers()[1], kind)
    return values[column.offset : column.offset + len(column)]


def _number(field: Any) -> np.dtype:
    """The type of a column of a Parquet file, which must be one of real numbers."""
    with suppress(NotImplementedError, TypeError):  # dictionaries, structs; times with a zone
        dtype = np.dtype(field.type.to_pandas_dtype())
        if dtype.kind in "biuf":
            return dtype
    raise ValueError(
        f"V, a Parquet file, has a column {field.name!r} of type {field.type}; all columns must "
        "hold real numbers: remove it, or convert it"
    )


def _check(shape: tuple[int, ...], dtype: Any, kind: str) -> None:
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"V, a {kind}, has shape {shape}; it must be a matrix with at least one row and one "
            "column"
        )
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"V, a {kind}, holds {dtype} values; it must hold real numbers")


def _check_rows(kind: str) -> None:
    if "csr" not in kind:
        raise ValueError(
            f"V is stored as {kind}, by columns; it is read by rows: write it again as CSR "
            "(adata.X = adata.X.tocsr() before writing), or load it with .to_memory()"
        )
