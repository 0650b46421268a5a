"""Tables: what separates their cells, where their labels are, and a sentence when wrong."""

import gzip

import numpy as np
import pytest

from factormer.read import read

V = np.arange(12.0).reshape(3, 4)
ROWS, COLUMNS = ("a", "b", "c"), ("w", "x", "y", "z")


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("0,1,2,3\n4,5,6,7\n8,9,10,11\n", None, None),
        ("w,x,y,z\n0,1,2,3\n4,5,6,7\n8,9,10,11\n", None, COLUMNS),
        ("\ufeffid,w,x,y,z\na,0,1,2,3\nb,4,5,6,7\nc,8,9,10,11\n", ROWS, COLUMNS),
        (",w,x,y,z\n1,0,1,2,3\n2,4,5,6,7\n3,8,9,10,11\n", ("1", "2", "3"), COLUMNS),
        ("w,x,y,z\na,0,1,2,3\nb,4,5,6,7\nc,8,9,10,11\n", ROWS, COLUMNS),  # as R writes it
        ("a,0,1,2,3\nb,4,5,6,7\nc,8,9,10,11\n", ROWS, None),
        (",1,2,3,4\na,0,1,2,3\nb,4,5,6,7\n\nc,8,9,10,11\n", ROWS, ("1", "2", "3", "4")),
        ("w,x,y,z,\n0,1,2,3,\n4,5,6,7,\n8,9,10,11,\n", None, COLUMNS),  # closed by separators
        ('w,"x",y,z\r\n0,1,2,3\r\n4,5,6,7\r\n8,9,10,11\r\n', None, COLUMNS),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
def test_table_finds_its_labels(tmp_path, text, rows, columns, suffix):
    path = tmp_path / f"d{suffix}"
    text = text.replace(",", "\t") if suffix == ".tsv" else text
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    data = read(path)
    np.testing.assert_array_equal(data.V, V)
    assert (data.rows.labels, data.columns.labels) == (rows, columns)
    assert data.name == "d"


@pytest.mark.parametrize(
    ("header", "noun"), [("gene,x,y", "gene"), ("Samples,x,y", "sample"), ("speed,y", "row")]
)
def test_rows_are_called_by_the_head_of_their_names(tmp_path, header, noun):
    (tmp_path / "d.csv").write_text(f"{header}\na,1,2\nb,3,4\n")
    assert read(tmp_path / "d.csv").rows.noun == noun


def test_table_of_one_column_has_a_header_if_its_first_cell_is_no_number(tmp_path):
    (tmp_path / "d.csv").write_text("x\n1\n2\n")
    np.testing.assert_array_equal(read(tmp_path / "d.csv").V, [[1], [2]])


BANDS = tuple(str(400 + 10 * k) for k in range(8))
WIDE = np.arange(16.0).reshape(2, 8)
LONG = np.arange(16.0).reshape(8, 2) ** 2


def text_of(corner: str | None, names, V, columns) -> str:
    """A table with what is given of a corner, names of rows and names of columns."""
    head = [[*([] if corner is None else [corner]), *columns]] if columns else []
    body = [
        [*([] if names is None else [names[i]]), *(f"{v:g}" for v in row)]
        for i, row in enumerate(V)
    ]
    return "\n".join(",".join(line) for line in [*head, *body]) + "\n"


@pytest.mark.parametrize(
    ("corner", "names", "V", "columns"),
    [
        ("id", ("7", "3"), WIDE, BANDS),  # both are numbers, under a word in the corner
        ("spectrum", ("7", "3"), WIDE, BANDS),
        ("sample", ("a", "b"), WIDE, BANDS),
        ("anything", ("a", "b"), WIDE, BANDS),  # bands that rise are no entries of V
        ("id", ("7", "3"), WIDE, tuple("stuvwxyz")),
        ("sample_id", ("7", "3"), WIDE, tuple("stuvwxyz")),
        ("time", tuple(f"{0.5 * k:g}" for k in range(8)), LONG, ("x", "y")),
        ("n", tuple(map(str, range(8))), LONG, ("x", "y")),  # counts the rows
        (None, tuple(str(1 + k) for k in range(8)), LONG, ()),
    ],
)
def test_numbers_that_are_names_are_no_data(tmp_path, corner, names, V, columns):
    (tmp_path / "d.csv").write_text(text_of(corner, names, V, columns))
    data = read(tmp_path / "d.csv")
    np.testing.assert_array_equal(data.V, V)
    assert (data.rows.labels, data.columns.labels) == (names, columns or None)
    assert data.rows.kind == ("line" if corner == "time" else "labels")


@pytest.mark.parametrize(
    ("text", "options", "shape", "told"),
    [
        ("1,2\n3,4\n5,6\n", {"header": True}, (2, 2), "labels in the first line"),
        ("1,2\n3,4\n5,6\n", {"index": True}, (3, 1), "labels in the first column"),
        (
            "1,2\n3,4\n5,6\n",
            {"header": True, "index": True},
            (2, 1),
            "labels in the first line and the first column",
        ),
        ("id,x\n3,4\n5,6\n", {"index": False}, (2, 2), "labels in the first line"),
        ("id,x\n3,4\n5,6\n", {}, (2, 1), "labels in the first line and the first column"),
        (",1\n3,4\n5,6\n", {"header": False, "index": False}, (3, 2), "no labels"),
    ],
)
def test_labels_are_where_the_user_says_and_this_is_told(tmp_path, text, options, shape, told):
    (tmp_path / "d.csv").write_text(text)
    data = read(tmp_path / "d.csv", **options)
    assert data.V.shape == shape
    assert data.source == f"table separated by commas; {told}"


def test_names_with_underscores_are_no_numbers(tmp_path):
    (tmp_path / "d.csv").write_text("x,y\n1_1,2\n1_2,4\n")
    assert read(tmp_path / "d.csv").rows.labels == ("1_1", "1_2")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize(
    ("separator", "point", "told"),
    [
        (",", ".", "commas"),
        (";", ".", "semicolons"),
        (";", ",", "semicolons, with decimal commas"),
        ("\t", ".", "tabs"),
        ("\t", ",", "tabs, with decimal commas"),
        ("|", ".", "bars"),
    ],
)
@pytest.mark.parametrize("labels", [True, False])
def test_what_separates_cells_is_found_out(tmp_path, suffix, separator, point, told, labels):
    lines = [[f"{v + 0.5}".replace(".", point) for v in row] for row in V]
    if labels:
        lines = [["id", *COLUMNS], *([name, *line] for name, line in zip(ROWS, lines, strict=True))]
    text = "\n".join(separator.join(line) for line in lines)
    path = tmp_path / f"d{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    data = read(path)
    np.testing.assert_array_equal(data.V, V + 0.5)
    assert (data.rows.labels, data.columns.labels) == ((ROWS, COLUMNS) if labels else (None, None))
    assert data.source.startswith(f"table separated by {told}; ")


@pytest.mark.parametrize("text", ["1 2 3\n4 5 6\n", "1:2\n3:4\n"])
def test_other_separators_are_refused_with_those_that_are_not(tmp_path, text):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(ValueError, match=r"separated by commas, semicolons, tabs or bars"):
        read(tmp_path / "d.csv", header=False)


def test_empty_cells_are_not_known(tmp_path):
    (tmp_path / "d.csv").write_text("x,y\n1,\nNA,4\n")
    np.testing.assert_array_equal(read(tmp_path / "d.csv").V, [[1, np.nan], [np.nan, 4]])


def test_blank_lines_are_none_and_quoted_blanks_are_not_known(tmp_path):
    (tmp_path / "d.csv").write_text('x\n1\n  \n""\n4\n')
    np.testing.assert_array_equal(read(tmp_path / "d.csv").V, [[1], [np.nan], [4]])


def test_parquet(tmp_path):
    pa, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    table = {"name": list(ROWS), **{c: V[:, j] for j, c in enumerate(COLUMNS)}}
    parquet.write_table(pa.table(table), tmp_path / "d.parquet")
    data = read(tmp_path / "d.parquet")
    np.testing.assert_array_equal(data.V, V)
    assert (data.rows.labels, data.columns.labels) == (ROWS, COLUMNS)


def test_parquet_without_names_and_with_absent_values(tmp_path):
    pa, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(pa.table({"x": [1, None], "y": [3.0, 4.0]}), tmp_path / "d.parquet")
    data = read(tmp_path / "d.parquet")
    np.testing.assert_array_equal(data.V, [[1, 3], [np.nan, 4]])
    assert data.rows.labels is None


def test_parquet_takes_the_index_of_pandas_and_the_column_that_is_named_so(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(V, columns=list(COLUMNS), index=[10, 30, 20])
    frame.to_parquet(tmp_path / "d.parquet")
    data = read(tmp_path / "d.parquet")
    np.testing.assert_array_equal(data.V, V)
    assert data.rows.labels == ("10", "30", "20")
    data = read(tmp_path / "d.parquet", index=False)
    assert data.V.shape == (3, 5)
    frame.reset_index(drop=True).to_parquet(tmp_path / "d.parquet")
    data = read(tmp_path / "d.parquet", index=True)
    np.testing.assert_array_equal(data.V, V[:, 1:])
    assert data.rows.labels == ("0.0", "4.0", "8.0")


def test_parquet_takes_a_named_index_of_pandas_wherever_it_stands(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    index = pandas.Index([10, 30, 20], name="sample")
    pandas.DataFrame(V, columns=list(COLUMNS), index=index).to_parquet(tmp_path / "d.parquet")
    data = read(tmp_path / "d.parquet")
    np.testing.assert_array_equal(data.V, V)
    assert data.rows.labels == ("10", "30", "20")
    assert data.rows.noun == "sample"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("d.csv", "x,y\n1,2\n3\n", "line 3, has 1 cells where others have 2"),
        ("d.csv", "a,1,2\nb,3,four\n", "line 2, column 3, is 'four'; it must be a number"),
        ("d.csv", "x,y\n\n1,2\n  \n3,four\n", "line 5, column 2, is 'four'"),
        ("d.csv", "x,y\n", "has a header and no rows"),
        ("d.txt", "1", "is of no kind that is known by its name; it must be a folder of images"),
    ],
)
def test_wrong_tables_are_told_where(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path / name)
