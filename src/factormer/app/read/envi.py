"""Hyperspectral cubes of ENVI: a text header (.hdr) beside a file of plain numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from factormer.app.read.data import Axis, Data, DataError, matrix, reading
from factormer.app.read.positions import UNITS, placed, unit_of_wavelengths
from factormer.data.memory import memory

# ENVI's codes of real numbers; the others are complex.
_TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
_ORDERS = {  # of the axes in the file, and how to turn them to lines × samples × bands
    "bsq": (("bands", "lines", "samples"), (1, 2, 0)),
    "bil": (("lines", "bands", "samples"), (0, 2, 1)),
    "bip": (("lines", "samples", "bands"), (0, 1, 2)),
}
_BESIDE = (".img", ".dat", ".raw", ".bin", ".cub", ".bsq", ".bil", ".bip", "")
_UNITS = {"nanometers": "nm", "nanometer": "nm", "micrometers": "µm", "micrometer": "µm"} | UNITS


def read_envi(path: Path) -> Data:
    """Pixels × bands, with the wavelengths of the header; ignored values are not known."""
    with reading(path, "an ENVI header"):
        fields = _fields(path)
        sizes = {name: _whole(fields, name, path) for name in ("samples", "lines", "bands")}
        kind = _whole(fields, "data type", path)
        order = fields.get("interleave", "bsq").strip().lower()
        if kind not in _TYPES or order not in _ORDERS:
            raise DataError(
                f"{path} has data type {kind} and interleave {order!r}; it must hold real numbers "
                f"({', '.join(map(str, _TYPES))}) as bsq, bil or bip"
            )
        names, turned = _ORDERS[order]
        big = fields.get("byte order", "0").strip() == "1"
        dtype = np.dtype(_TYPES[kind]).newbyteorder(">" if big else "<")
        shape, skipped = [sizes[name] for name in names], int(fields.get("header offset", "0"))
        values = _numbers(path, dtype, shape, skipped).transpose(turned)
    cube = values.astype(np.float32 if dtype.itemsize <= 2 or kind == 4 else np.float64)
    height, width, bands = cube.shape
    if (ignored := fields.get("data ignore value")) is not None:
        cube = np.where(cube == float(ignored), np.nan, cube)
    if (scale := float(fields.get("reflectance scale factor", "1"))) not in (0.0, 1.0):
        cube = cube / np.asarray(scale, dtype=cube.dtype)
    columns = Axis(bands, "band", is_ordered=True)
    places = [float(text) for text in _listed(fields.get("wavelength", ""))]
    if len(places) == bands:
        unit = _UNITS.get(fields.get("wavelength units", "").strip().lower(), "")
        at = placed(columns, "wavelength", places)
        columns = replace(at, unit=unit or unit_of_wavelengths(places))
    return Data(
        matrix(cube.reshape(-1, bands), path),
        Axis(height * width, "pixel", grid=(height, width)),
        columns,
        path.stem,
        f"ENVI cube of {height}×{width} pixels and {bands} bands",
    )


def _fields(path: Path) -> dict[str, str]:
    """The parts of a header, each `name = value` or `name = { several, values }`."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if not text.lstrip().startswith("ENVI"):
        raise DataError(f"{path} is not an ENVI header, which begins with the word ENVI")
    pairs = re.findall(r"^\s*([^=\n{}]+?)\s*=\s*(\{[^}]*\}|[^\n]*)", text, re.MULTILINE)
    return {name.lower(): value.strip().strip("{}") for name, value in pairs}


def _whole(fields: dict[str, str], name: str, path: Path) -> int:
    try:
        number = int(fields[name])
    except (KeyError, ValueError):
        number = 0
    if number < 1:
        raise DataError(f"{path} has no {name!r}; it must be a whole number above 0")
    return number


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(path: Path, dtype: np.dtype, shape: list[int], skipped: int) -> np.ndarray:
    """The numbers of the file beside the header."""
    base = path.with_suffix("")
    beside = [base.with_name(base.name + suffix) for suffix in _BESIDE]
    found = next((file for file in beside if file.is_file()), None)
    if found is None:
        raise DataError(
            f"{path} has no data beside it; put the file it describes there, as {base.name}.img"
        )
    count = int(np.prod(shape, dtype=np.int64))
    size, needed = found.stat().st_size, skipped + count * dtype.itemsize
    if size < needed:
        raise DataError(
            f"{found} has {size} bytes, and its header describes {needed}; copy it again"
        )
    if 16 * count > (room := memory()):
        raise DataError(
            f"{found} takes {16 * count / 1e9:.1f} GB as a matrix to factorize, and there are "
            f"{room / 1e9:.1f} GB of memory here; cut out a part of it"
        )
    return np.fromfile(found, dtype=dtype, count=count, offset=skipped).reshape(shape)
