"""Single cells as 10x Genomics writes them: a folder of a matrix, its genes and its barcodes."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

from factormer.app.read.arrays import read_mtx
from factormer.app.read.data import Data, DataError, reading

_GENES = ("features.tsv", "genes.tsv")
_EXPRESSION = "Gene Expression"


def is_10x(path: Path) -> bool:
    """Whether a folder holds such a matrix."""
    return _file(path, "matrix.mtx") is not None


def read_10x(path: Path) -> Data:
    """Cells × genes, with the names of both; of several kinds of features the genes alone."""
    matrix, barcodes = _file(path, "matrix.mtx"), _file(path, "barcodes.tsv")
    genes = next((file for name in _GENES if (file := _file(path, name))), None)
    if matrix is None or genes is None or barcodes is None:
        raise DataError(
            f"{path} lacks {'barcodes.tsv' if genes else 'features.tsv or genes.tsv'}; a folder "
            "of 10x holds matrix.mtx, features.tsv (or genes.tsv) and barcodes.tsv, also as .gz"
        )
    data = read_mtx(matrix)
    features, cells = _lines(genes), [line[0] for line in _lines(barcodes)]
    if data.V.shape != (len(features), len(cells)):
        m, n = data.V.shape
        raise DataError(
            f"{matrix} is {m}×{n}, beside {len(features)} genes and {len(cells)} barcodes; these "
            "files must be of one experiment"
        )
    kinds = {line[2] for line in features if len(line) > 2}
    V, source = data.V, "10x folder"
    if len(kinds) > 1 and _EXPRESSION in kinds:
        kept = [i for i, line in enumerate(features) if line[2:3] == [_EXPRESSION]]
        left = len(features) - len(kept)
        V, features = V[kept], [features[i] for i in kept]
        source = f"10x folder, without {left} features that are not genes"
    name = path.resolve().name
    turned = replace(data, V=V.T.tocsr(), name=name, source=source)
    rows = replace(data.columns, size=len(cells), noun="cell", labels=tuple(cells))
    columns = replace(data.rows, size=len(features), noun="gene", labels=_symbols(features))
    return replace(turned, rows=rows, columns=columns)


def _symbols(features: list[list[str]]) -> tuple[str, ...]:
    """The symbols of genes; those that several share have their ids beside them."""
    symbols = [line[1] if len(line) > 1 and line[1] else line[0] for line in features]
    counts = Counter(symbols)
    pairs = zip(symbols, features, strict=True)
    return tuple(name if counts[name] == 1 else f"{name} ({line[0]})" for name, line in pairs)


def _file(path: Path, name: str) -> Path | None:
    files = (path / name, path / f"{name}.gz")
    return next((file for file in files if file.is_file()), None)


def _lines(path: Path) -> list[list[str]]:
    with reading(path, "a table of names"):
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
        return [line.split("\t") for line in text.splitlines() if line.strip()]
