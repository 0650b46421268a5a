"""Arrays: .npy, .npz (numpy's and scipy's), .mat and .mtx. Nothing in a file is executed."""

from __future__ import annotations

import gzip
import math
import struct
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.io
import scipy.sparse

from factormer.app.read.data import (
    Axis,
    Data,
    DataError,
    matrix,
    plain,
    reading,
    reading_numbers,
    stem,
)
from factormer.app.read.positions import is_position, placed
from factormer.data.memory import memory

LAYOUTS = ("images", "cube")
_USUAL = ("V", "X", "data", "Y", "fea")
_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # of bytes, in files of MATLAB 5 and later
_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 14, 15, 16, 17, 18}  # of data in them
_MATRIX, _COMPRESSED = 14, 15


def read_npy(path: Path, *, layout: str | None = None) -> Data:
    """One array, of two axes or three."""
    with reading(path, "a numpy array"):
        _check_magic(path, b"\x93NUMPY", "an .npy file", "numpy.save")
        with reading_numbers():
            values = np.load(path, allow_pickle=False)
        return _laid_out(values, path, layout, "numpy array")


def read_npz(path: Path, *, key: str | None = None, layout: str | None = None) -> Data:
    """The array named by `key`, with the labels in the file; or a sparse matrix of scipy's."""
    _check_magic(path, b"PK", "an .npz file", "numpy.savez")
    with reading(path, "an archive of numpy arrays"), path.open("rb") as source:
        file = np.load(source, allow_pickle=False)  # given a path, it leaves damaged files open
        _check_room(path)
        if "format" in file.files and "shape" in file.files:
            source.seek(0)
            return plain(scipy.sparse.load_npz(source), path, "sparse matrix")
        names = [name for name in file.files if f"{name}.npy" in file.zip.namelist()]
        with reading_numbers():
            arrays = {name: file[name] for name in names}
        values = arrays.pop(name := _chosen(arrays, path, key))
        data = _laid_out(values, path, layout, f"numpy array {name}")
        return _described(data, arrays)


def read_mat(path: Path, *, key: str | None = None, layout: str | None = None) -> Data:
    """A matrix of MATLAB's, dense or sparse; version 7.3 files are HDF5."""
    with reading(path, "a MATLAB file"):
        with path.open("rb") as file:
            if (order := _ORDERS.get(file.read(128)[124:])) is not None:
                _check_types(file, 128, path.stat().st_size, order, path)
        try:
            arrays = scipy.io.loadmat(path)
        except NotImplementedError:  # how scipy reports version 7.3
            arrays = _read_hdf5(path)
        arrays = {name: value for name, value in arrays.items() if not name.startswith("__")}
        name = _chosen(arrays, path, key)
        return _laid_out(arrays[name], path, layout, f"MATLAB array {name}")


def _check_types(file: BinaryIO, at: int, end: int, order: str, path: Path) -> None:
    """Refuse a MATLAB file with data of no known type: scipy's reader may crash on one."""
    while at + 8 <= end:
        file.seek(at)
        kind, size = struct.unpack(order + "II", file.read(8))
        is_short, kind = kind > 0xFFFF, kind & 0xFFFF  # a short one is in its own tag
        if kind not in _TYPES:
            raise DataError(f"{path} is damaged: it has data of type {kind}; write it again")
        if kind == _MATRIX:
            _check_types(file, at + 8, min(at + 8 + size, end), order, path)
        padded = size if kind == _COMPRESSED else -(-size // 8) * 8
        at += 8 if is_short else 8 + padded


def read_mtx(path: Path) -> Data:
    """Matrix Market, also compressed (.mtx.gz)."""
    with reading(path, "a Matrix Market file"):
        _check_length(path)
        with warnings.catch_warnings():  # about a future return type, which `plain` takes as well
            warnings.simplefilter("ignore", DeprecationWarning)
            return plain(scipy.io.mmread(path), path, "Matrix Market file")


def _check_length(path: Path) -> None:
    """Refuse a Matrix Market file that was cut: scipy's reader may crash on one."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        kind = file.readline().lower()
        sizes = next((line.split() for line in file if not line.startswith(b"%")), [])
        entries = sum(1 for line in file if line.strip())
    stored = int(sizes[-1]) if b"coordinate" in kind else int(sizes[0]) * int(sizes[1])
    if entries < stored and b"general" in kind:
        raise DataError(f"{path} ends after {entries} of {stored} entries: write it again")


def _check_magic(path: Path, begins: bytes, what: str, writer: str) -> None:
    """Check the first bytes: numpy takes other files for pickles, and reports only that."""
    with path.open("rb") as file:
        start = file.read(len(begins))
    if start != begins:
        state = "is not" if start else "is empty, and not"
        raise DataError(f"{path} {state} {what}, despite its name; write one with {writer}")


def _check_room(path: Path) -> None:
    """A small archive may unpack to more than there is memory."""
    with zipfile.ZipFile(path) as archive:
        size = sum(item.file_size for item in archive.infolist())
    if 2 * size > (room := memory()):  # as stored, and as the matrix to factorize
        raise DataError(
            f"{path} unpacks to {size / 1e9:.1f} GB, which is more than half of the "
            f"{room / 1e9:.1f} GB of memory here; store less in it"
        )


def _read_hdf5(path: Path) -> dict[str, Any]:
    """The numeric arrays at the top; MATLAB stores them transposed."""
    from factormer.app.read.optional import require

    h5py = require("h5py", path)
    with h5py.File(path, "r") as file:
        sets = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
        return {name: np.asarray(item[()]).T for name, item in sets.items()}


def _chosen(arrays: dict[str, Any], path: Path, key: str | None) -> str:
    """The name of the array that is meant: the one asked for, the only one, or a usual name."""
    if key is not None:
        if key in arrays:
            return key
        raise DataError(f"{path} has no array {key!r}; it has {sorted(arrays)}")
    fit = [name for name, a in arrays.items() if a.ndim in (2, 3) and a.dtype.kind in "biuf"]
    usual = [name for name in _USUAL if name in fit]
    if len(fit) == 1 or usual:
        return (usual or fit)[0]
    raise DataError(
        f"{path} has the arrays {sorted(arrays)}; choose the matrix with --key"
        if fit
        else f"{path} has no matrix of numbers; its arrays are {sorted(arrays)}"
    )


def _laid_out(values: Any, path: Path, layout: str | None, source: str) -> Data:
    """A matrix unchanged; three axes as one image per row, or as a cube of pixels × bands."""
    if layout is not None and layout not in LAYOUTS:
        raise DataError(f"--layout is {layout!r}; choose 'images' or 'cube'")
    if values.ndim != 3:
        if layout is not None:
            raise DataError(f"{path} has {values.ndim} axes; --layout is for arrays of three")
        return plain(values, path, source)
    if layout is None:
        raise DataError(
            f"{path} has three axes, {values.shape}: use --layout images (images × height × width) "
            "or --layout cube (height × width × bands)"
        )
    if layout == "images":
        count, *grid = values.shape
        V = matrix(values.reshape(count, -1), path)
        rows = Axis(count, "image")
        columns = Axis(V.shape[1], "pixel", grid=(grid[0], grid[1]))
    else:
        height, width, bands = values.shape
        V = matrix(values.reshape(-1, bands), path)
        rows = Axis(height * width, "pixel", grid=(height, width))
        columns = Axis(bands, "band", is_ordered=True)
    return Data(V, rows, columns, stem(path), source)


def _described(data: Data, arrays: dict[str, Any]) -> Data:
    """With labels and the shape of images, where the other arrays of the file fit one axis alone.

    Vectors of strings are labels, and numbers that are called frequencies, times or the like say
    where rows or columns lie; `image_shape` is the height and width of images stored as rows.
    """
    for name, values in arrays.items():
        if values.ndim == 1 and values.dtype.kind == "U":
            side = _side(data, len(values), name)
            if side:
                labels = [str(value) for value in values]
                data = replace(data, **{side: getattr(data, side).labelled(labels, name)})
        elif values.ndim == 1 and values.dtype.kind in "iuf" and is_position(name):
            side = _side(data, len(values), name)
            if side:
                axis = placed(getattr(data, side), name, values.tolist())
                data = replace(data, **{side: axis})
        elif name == "image_shape" and values.shape == (2,):
            side = _side(data, math.prod(map(int, values)), name)
            if side:
                axis = replace(getattr(data, side), grid=(int(values[0]), int(values[1])))
                data = replace(data, **{side: replace(axis, noun="pixel")})
    return data


def _side(data: Data, size: int, name: str) -> str | None:
    """The only axis that has this size."""
    for side in ("rows", "columns"):
        if name in (f"{side}_labels", f"{side[:-1]}_labels") and getattr(data, side).size == size:
            return side
    fitting = [side for side in ("rows", "columns") if getattr(data, side).size == size]
    return fitting[0] if len(fitting) == 1 else None
