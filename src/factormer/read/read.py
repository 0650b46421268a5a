"""read(): choose the reader by the name of the file, then apply what the user says about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from factormer.read import arrays, cells, pictures, sound, tables
from factormer.read.data import Axis, Data, stem

FORMATS: dict[str, Callable[..., Data]] = {
    ".npy": arrays.read_npy,
    ".npz": arrays.read_npz,
    ".mat": arrays.read_mat,
    ".mtx": arrays.read_mtx,
    ".mtx.gz": arrays.read_mtx,
    ".csv": tables.read_table,
    ".csv.gz": tables.read_table,
    ".tsv": tables.read_table,
    ".tsv.gz": tables.read_table,
    ".parquet": tables.read_parquet,
    ".h5ad": cells.read_h5ad,
    ".wav": sound.read_wav,
}


def read(
    path: str | Path,
    *,
    key: str | None = None,
    layout: str | None = None,
    transpose: bool = False,
    rows_are: str | None = None,
    columns_are: str | None = None,
    row_labels: str | Path | None = None,
    column_labels: str | Path | None = None,
    resize: str | None = None,
) -> Data:
    """Read a matrix from a file, or from a folder of images; nothing in a file is executed.

    Parameters
    ----------
    path : str or Path
        A file whose name ends in one of FORMATS, or a folder of images.
    key : str, optional
        Which array of an .npz or .mat file, or which layer of an .h5ad file.
    layout : "images" or "cube", optional
        What three axes are: images × height × width, or height × width × bands.
    transpose : bool
        Exchange rows and columns, after all else has been read, and before what follows is applied.
    rows_are, columns_are : str, optional
        How they are drawn: HEIGHTxWIDTH for the pixels of an image, "line" or "labels".
    row_labels, column_labels : str or Path, optional
        Text files, one label a line.
    resize : str, optional
        HEIGHTxWIDTH to which the images of a folder are resized.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; name one that is there")
    if path.is_dir():
        data = pictures.read_pictures(path, size=None if resize is None else _size(resize))
    else:
        data = _reader(path)(path, key=key, layout=layout)
    if transpose:
        data = data.transposed()
    rows = _adjusted(data.rows, rows_are, row_labels)
    return replace(data, rows=rows, columns=_adjusted(data.columns, columns_are, column_labels))


def _reader(path: Path) -> Callable[..., Data]:
    name = path.name.lower()
    fitting = [suffix for suffix in FORMATS if name.endswith(suffix)]
    if not fitting:
        raise ValueError(
            f"{path} is of no kind that is known by its name; it must be a folder of images or end "
            f"in one of {', '.join(FORMATS)}"
        )
    return FORMATS[max(fitting, key=len)]


def _adjusted(axis: Axis, drawn_as: str | None, labels: str | Path | None) -> Axis:
    if labels is not None:
        lines = Path(labels).expanduser().read_text(encoding="utf-8").splitlines()
        axis = axis.labelled([line.strip() for line in lines], stem(Path(labels)))
    return axis if drawn_as is None else axis.drawn_as(drawn_as)


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)[x×]([1-9]\d*)", text)
    if match is None:
        raise ValueError(f"the size to resize to is {text!r}; it must be HEIGHTxWIDTH, as 64x64")
    return int(match[1]), int(match[2])
