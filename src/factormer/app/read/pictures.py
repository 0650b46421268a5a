"""A folder of images: one per row, its pixels the columns."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from factormer.app.read.data import Axis, Data, DataError, reading
from factormer.app.read.optional import require

_PIXELS = 100_000_000  # per image, at most
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")


def read_pictures(path: Path, *, resize: str | None = None) -> Data:
    """All images of a folder in grey, 0 … 1, ordered by name; HEIGHTxWIDTH resizes them."""
    size = None if resize is None else _size(resize)
    images = require("PIL.Image", path)
    files = sorted((f for f in path.iterdir() if f.suffix.lower() in SUFFIXES), key=_order)
    if not files:
        raise DataError(f"{path} holds no image; a folder must hold images ({', '.join(SUFFIXES)})")
    rows = []
    for file in files:
        with reading(file, "an image"), images.open(file) as image:
            _check_size(f"{file} is", image.height, image.width)
            grey = _grey(image)
            if size is not None:
                whole = images.fromarray(grey)
                grey = np.asarray(whole.resize((size[1], size[0]), images.Resampling.BOX))
            rows.append(grey)
        if rows[-1].shape != rows[0].shape:
            (h, w), (height, width) = rows[-1].shape, rows[0].shape
            raise DataError(
                f"{file} is {h}×{w} and {files[0].name} {height}×{width}; all must be of one size: "
                f"resize them by --resize {height}x{width}"
            )
    V = np.stack([row.ravel() for row in rows])
    grid = (rows[0].shape[0], rows[0].shape[1])
    return Data(
        V,
        Axis(len(files), "image", labels=tuple(file.stem for file in files)),
        Axis(V.shape[1], "pixel", grid=grid),
        path.resolve().name,
        f"folder of {len(files)} images of {grid[0]}×{grid[1]} pixels",
    )


def _grey(image) -> np.ndarray:
    """Sixteen-bit greys keep their depth; all else is eight bits."""
    if image.mode.startswith("I"):
        return (np.asarray(image, dtype=np.float64) / 65535).astype(np.float32)
    return np.asarray(image.convert("L"), dtype=np.float32) / 255


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d{0,8})[x×]([1-9]\d{0,8})", text)
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise ValueError(f"the size to resize to is {shown!r}; it must be HEIGHTxWIDTH: 64x64")
    height, width = int(match[1]), int(match[2])
    _check_size("the size to resize to is", height, width)
    return height, width


def _check_size(what: str, height: int, width: int) -> None:
    if height * width > _PIXELS:
        raise DataError(f"{what} {height}×{width}; it may have {_PIXELS} pixels at most; resize it")


def _order(file: Path) -> list[tuple[int, str | int]]:
    """image2 before image10."""
    parts = re.split(r"(\d+)", file.name.lower())
    return [(1, int(part)) if part.isdigit() else (0, part) for part in parts]
