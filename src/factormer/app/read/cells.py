"""Single cells: .h5ad files of AnnData, read as HDF5."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from factormer.app.read.data import Data, DataError, plain, reading
from factormer.app.read.optional import require


def read_h5ad(path: Path, *, key: str | None = None) -> Data:
    """X, or the layer that `key` names: cells × genes, with the names of both."""
    h5py = require("h5py", path)
    with reading(path, "an h5ad file"), h5py.File(path, "r") as file:
        if key is not None and (layers := file.get("layers", {})).get(key) is None:
            raise DataError(f"{path} has no layer {key!r}; it has {sorted(layers)}")
        if key is None and "X" not in file:
            raise DataError(f"{path} has no X; it has {sorted(file)}")
        data = plain(_matrix(file["X"] if key is None else file["layers"][key]), path, "h5ad file")
        rows = replace(data.rows, noun="cell").labelled(_names(file["obs"]))
        columns = replace(data.columns, noun="gene").labelled(_names(file["var"]))
    return replace(data, rows=rows, columns=columns)


def _matrix(item: Any) -> Any:
    """A dataset is dense; a group holds the parts of a csr or csc matrix."""
    if not hasattr(item, "keys"):
        return np.asarray(item[()])
    kind = item.attrs.get("encoding-type", item.attrs.get("h5sparse_format", "csr"))
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    shape = tuple(map(int, item.attrs.get("shape", item.attrs.get("h5sparse_shape"))))
    parts = tuple(np.asarray(item[name][()]) for name in ("data", "indices", "indptr"))
    make = scipy.sparse.csc_array if "csc" in kind else scipy.sparse.csr_array
    return make(parts, shape=shape)


def _names(frame: Any) -> list[str]:
    """The index of a table of AnnData's: a group with columns, or an old compound array."""
    if not hasattr(frame, "keys"):
        values = frame[frame.dtype.names[0]]
    else:
        index = frame.attrs.get("_index", "_index")
        values = frame[index.decode() if isinstance(index, bytes) else index][()]
    return [name.decode() if isinstance(name, bytes) else str(name) for name in values]
