"""The compiled reader of tables beside the literal one: whatever it reads, it reads alike."""

import gzip
import sys

import numpy as np
import pytest

from factormer.app.read import read, tables
from factormer.app.read.compiled import Columns, Unsuited
from factormer.app.read.opening import opening_of

V = np.arange(12.0).reshape(3, 4)
ROWS, COLUMNS = ("a", "b", "c"), ("w", "x", "y", "z")

NUMBERS = ["0", "1", "-2.5", "1e3", "4.", ".5", "007", "1e-320", "0.1234567890123456789", "9" * 40]
ODD = ["+1", " 7", "8 ", "inf", "-inf", "1e400", "1e-400", "nan", "NaN", "NA", "n/a", "", "None"]
WRONG = ["x", "1_000", "0x10", "1 2", "nan(1)", "--1", "5e", "infinity", "'1'", "1d5", "\u0661"]


def told(path, options):
    """All that is read of a table, or the sentence."""
    try:
        data = read(path, **options)
    except ValueError as error:
        return str(error)
    return data.V.tobytes(), data.V.shape, data.rows, data.columns, data.source


@pytest.mark.parametrize("seed", range(150))
def test_both_readers_tell_the_same(tmp_path, monkeypatch, seed):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(seed)
    m, n = rng.integers(1, 7), rng.integers(1, 5)
    cells = NUMBERS if seed % 3 else NUMBERS * 4 + ODD + (WRONG if seed % 2 else [])
    separator = [",", "\t", ";", " ", "|"][rng.integers(5)]
    table = [[str(rng.choice(cells)) for _ in range(n)] for _ in range(m)]
    if rng.random() < 0.5:
        names = ["a", '"b"', '"c ""d"""', "3", "\u00e9", "", '"e\nf"', "a b", "1"]
        table = [[str(rng.choice(names)), *row] for row in table]
    if rng.random() < 0.5:
        table = [[str(rng.choice(["x", "id", "1", '"y"', ""])) for _ in table[0]], *table]
    if rng.random() < 0.1:
        table[-1] = table[-1][:-1]
    end = ["\n", "\r\n", "\r"][rng.integers(3)] * (1 + (rng.random() < 0.1))
    end = separator * (rng.random() < 0.1) + end
    text = "\ufeff" * (rng.random() < 0.1) + end.join(separator.join(row) for row in table)
    (tmp_path / "d.csv").write_bytes((text + end * (rng.random() < 0.8)).encode())
    options = [{}, {"header": True}, {"header": False, "index": False}, {"index": True}][seed % 4]
    monkeypatch.setattr(tables, "_LARGE", 1 << 60)
    literal = told(tmp_path / "d.csv", options)
    monkeypatch.setattr(tables, "_LARGE", 0)
    assert told(tmp_path / "d.csv", options) == literal


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".txt"])
def test_ordinary_tables_are_read_by_compiled_code(tmp_path, suffix):
    pytest.importorskip("pyarrow")
    separator = {".csv": ",", ".tsv.gz": "\t", ".txt": " "}[suffix]
    lines = ["# ours", separator.join(["id", *COLUMNS])]
    lines += [separator.join([f'"{a}"', *map(str, v)]) for a, v in zip(ROWS, V, strict=True)]
    path, text = tmp_path / f"d{suffix}", "\r\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    columns = Columns(path, opening_of(path))
    assert (tuple(columns.names(True)), columns.first) == (ROWS, ["id", *COLUMNS])
    np.testing.assert_array_equal(columns.values(True, True), V)


def test_without_pyarrow_large_tables_are_read_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "d.csv").write_text("1,2\n3,4\n")
    with pytest.raises(Unsuited):
        Columns(tmp_path / "d.csv", opening_of(tmp_path / "d.csv"))
    np.testing.assert_array_equal(read(tmp_path / "d.csv").V, [[1, 2], [3, 4]])
