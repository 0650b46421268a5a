"""Files that are read in blocks of rows, since they do not fit into memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from factormer.app.read.data import DataError, reading
from factormer.app.read.optional import require
from factormer.data.intake import fits
from factormer.data.memory import as_bytes
from factormer.data.sources import Source, source_of

_STORES = (".h5", ".hdf5", ".zarr")  # which are read in blocks whatever their size
_SUFFIXES = (".npy", ".h5ad", ".parquet", *_STORES)


def opened(path: str | Path, key: str | None, memory_limit: Any) -> Source | None:
    """The file as a source of rows; None if it is of another kind, or fits into memory."""
    path, limit = Path(path).expanduser(), as_bytes(memory_limit)
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES or not path.exists():
        return None
    if suffix not in _STORES:
        source = None
        with suppress(Exception):  # the reader of files in memory says what is wrong
            source = source_of(_store(path, suffix, key))
        return None if source is None or fits(source, limit) else source
    with reading(path, "a matrix that is read in blocks"):
        source = source_of(_store(path, suffix, key))
    if source is None:
        raise DataError(f"{path} holds no matrix of rows; choose one in it with --key")
    return source


def _store(path: Path, suffix: str, key: str | None) -> Any:
    if suffix == ".npy":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    if suffix == ".parquet":
        return require("pyarrow.parquet", path).ParquetFile(path)
    if suffix == ".zarr":
        store = require("zarr", path).open(str(path), mode="r")
        return _chosen(store, path, key) if hasattr(store, "keys") else store
    file = require("h5py", path).File(path, "r", rdcc_nbytes=2**20)  # it is read in order
    if suffix == ".h5ad":
        return file["X"] if key is None else file["layers"][key]
    return _chosen(file, path, key)


def _chosen(group: Any, path: Path, key: str | None) -> Any:
    """The array that is meant: the one asked for, or the only one of two axes."""
    if key is not None:
        if key in group:
            return group[key]
        raise DataError(f"{path} has no array {key!r}; it has {sorted(group.keys())}")
    fitting = [name for name in group if len(getattr(group[name], "shape", ())) == 2]
    if len(fitting) != 1:
        raise DataError(f"{path} has the matrices {sorted(fitting)}; choose one with --key")
    return group[fitting[0]]
