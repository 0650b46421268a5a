"""read(): choose the reader by the name of the file, then apply what the user says about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from factormer.app.read import (
    arrays,
    cells,
    envi,
    parquet,
    pictures,
    ratings,
    sound,
    tables,
    tenx,
)
from factormer.app.read.data import Axis, Data, stem
from factormer.app.read.mutations import order_of
from factormer.app.read.positions import at_wavelengths


class Format(NamedTuple):
    """How a kind of file is read, and the options that apply to it."""

    reader: Callable[..., Data]
    takes: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    ".npy": Format(arrays.read_npy, ("layout",)),
    ".npz": Format(arrays.read_npz, ("key", "layout")),
    ".mat": Format(arrays.read_mat, ("key", "layout")),
    ".mtx": Format(arrays.read_mtx),
    ".mtx.gz": Format(arrays.read_mtx),
    ".csv": Format(tables.read_table, ("header", "index")),
    ".csv.gz": Format(tables.read_table, ("header", "index")),
    ".tsv": Format(tables.read_table, ("header", "index")),
    ".tsv.gz": Format(tables.read_table, ("header", "index")),
    ".txt": Format(tables.read_table, ("header", "index")),
    ".txt.gz": Format(tables.read_table, ("header", "index")),
    ".parquet": Format(parquet.read_parquet, ("index",)),
    ".h5ad": Format(cells.read_h5ad, ("key",)),
    ".wav": Format(sound.read_wav),
    ".hdr": Format(envi.read_envi),
}
_FOLDER = Format(pictures.read_pictures, ("resize",))
_CELLS = Format(tenx.read_10x)
_RATINGS = Format(ratings.read_ratings, ("layout", "header"))


def read(
    path: str | Path,
    *,
    key: str | None = None,
    layout: str | None = None,
    header: bool | None = None,
    index: bool | None = None,
    resize: str | None = None,
    transpose: bool = False,
    rows_are: str | None = None,
    columns_are: str | None = None,
    row_labels: str | Path | None = None,
    column_labels: str | Path | None = None,
    wavelengths: str | Path | None = None,
) -> Data:
    """Read a matrix from a file, or from a folder of images or of 10x; no file is executed.

    Parameters
    ----------
    path : str or Path
        A file whose name ends in one of FORMATS, or a folder of images or of 10x.
    key : str, optional
        Which array of an .npz or .mat file, or which layer of an .h5ad file.
    layout : "images", "cube" or "ratings", optional
        What three axes are: images × height × width, or height × width × bands. Of a table: that
        each line is a user, an item and a rating.
    header, index : bool, optional
        Whether the first line, and the first column, of a table are labels; detected by default.
    resize : str, optional
        HEIGHTxWIDTH to which the images of a folder are resized.
    transpose : bool
        Exchange rows and columns, after all else has been read, and before what follows is applied.
    rows_are, columns_are : str, optional
        How they are drawn: HEIGHTxWIDTH for the pixels of an image, "line" or "labels"; or what
        they are called: "tumours".
    row_labels, column_labels : str or Path, optional
        Text files, one label per line.
    wavelengths : str or Path, optional
        Text file with the wavelength of each band, in nm or µm.
    """
    path = Path(path).expanduser()
    said = {"key": key, "layout": layout, "header": header, "index": index, "resize": resize}
    said = {name: value for name, value in said.items() if value is not None}
    chosen = _format(path)
    if layout == ratings.LAYOUT and chosen.reader is tables.read_table:
        chosen = _RATINGS
    for name in said:
        if name not in chosen.takes:
            raise ValueError(f"--{name} does not apply to {path}: it is for {_taking(name)}")
    data = chosen.reader(path, **said)
    if transpose:
        data = data.transposed()
    rows = _adjusted(data.rows, rows_are, row_labels)
    columns = _adjusted(data.columns, columns_are, column_labels)
    if wavelengths is not None:
        rows, columns = at_wavelengths(rows, columns, Path(wavelengths).expanduser())
    return replace(data, rows=_beside(rows, columns), columns=_beside(columns, rows))


def read_beside(path: str | Path, said: dict[str, Any], *, transpose: bool = False) -> Data:
    """Read a mask or weights with the options of the data they belong to.

    The two files may be of different kinds: options that do not apply to this one are left out.
    """
    path = Path(path).expanduser()
    takes = _format(path).takes
    return read(path, transpose=transpose, **{k: v for k, v in said.items() if k in takes})


def _format(path: Path) -> Format:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; choose one that exists")
    if path.is_dir():
        return _CELLS if tenx.is_10x(path) else _FOLDER
    if not path.is_file():
        raise ValueError(f"{path} is a pipe or a device; save its output to a file first")
    name = path.name.lower()
    fitting = [suffix for suffix in FORMATS if name.endswith(suffix)]
    if not fitting:
        raise ValueError(
            f"{path} has an unknown suffix; it must be a folder of images or of 10x, or end "
            f"in one of {', '.join(FORMATS)}"
        )
    return FORMATS[max(fitting, key=len)]


def _taking(name: str) -> str:
    """The kinds of files that an option applies to."""
    if name in _FOLDER.takes:
        return "folders of images"
    return ", ".join(suffix for suffix, kind in FORMATS.items() if name in kind.takes)


def _adjusted(axis: Axis, drawn_as: str | None, labels: str | Path | None) -> Axis:
    if labels is not None:
        axis = axis.labelled(_lines(Path(labels).expanduser()), stem(Path(labels)))
    return axis if drawn_as is None else axis.drawn_as(drawn_as)


def _beside(axis: Axis, other: Axis) -> Axis:
    """The axis with a name, where the other one says what V is about: mutations are of samples."""
    unnamed = axis.noun in ("row", "column") and order_of(other.labels) is not None
    return replace(axis, noun="sample") if unnamed else axis


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; choose one with a label per line")
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason}); it must hold one label per line"
        ) from error
