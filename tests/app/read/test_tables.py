"""Tables: what separates their cells, where their labels are, and a sentence when wrong."""

import gzip

import numpy as np
import pytest

from factormer.app.read import read, tables

V = np.arange(12.0).reshape(3, 4)
ROWS, COLUMNS = ("a", "b", "c"), ("w", "x", "y", "z")


@pytest.fixture(params=["literal", "compiled"], autouse=True)
def reader(request, monkeypatch):
    """Each law holds for tables that are read cell by cell, and for those that are too large."""
    if request.param == "compiled":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(tables, "_LARGE", 0 if request.param == "compiled" else 1 << 60)
    return request.param


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


@pytest.mark.parametrize("text", ["1:2:3\n4:5:6\n", "1:2\n3:4\n"])
def test_other_separators_are_refused_with_those_that_are_not(tmp_path, text):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(
        ValueError, match=r"separated by commas, semicolons, tabs, bars \(\|\) or blanks"
    ):
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
        (
            "d.csv",
            "1,2\n3,1_000\n",
            "line 2, column 2, is '1_000'; it must be a number in plain dig",
        ),
        ("d.csv", "1_000,2\n3,4\n", "line 1, column 1, is '1_000'"),
        ("d.csv", "x,y\n1,2\n0x10,2\n", "line 3, column 1, is '0x10'; .* use --header or --index"),
        ("d.csv", "1,0x1F\n3,4\n", "line 1, column 2, is '0x1F'"),
        ("d.csv", "a,1_000\nb,2\n", "line 1, column 2, is '1_000'"),
        ("d.csv", "# by us\n\nx,y\n1,2\n3,four\n", "line 5, column 2, is 'four'"),
        ("d.csv", '"1,00",2\n3,4\n', "line 1, column 1, is '1,00'"),
        (
            "d.csv",
            "1,2\n" * 9 + '"3,4\n' + "5,6\n" * 40_000,
            "a cell of more than .* quote is closed",
        ),
        ("d.doc", "1", "has an unknown suffix; it must be a folder of images"),
    ],
)
def test_wrong_tables_are_told_where(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path / name)


# Files as people have them


def test_lines_may_be_long(tmp_path):
    names = [f"ENSG{j:011d}" for j in range(9000)]
    lines = [[f"s{i}", *(f"{i + j}.5" for j in range(9000))] for i in range(3)]
    text = "\n".join(",".join(line) for line in [["sample", *names], *lines])
    assert len(text.partition("\n")[0]) > 131_072
    (tmp_path / "d.csv").write_text(text)
    data = read(tmp_path / "d.csv")
    np.testing.assert_array_equal(data.V, np.add.outer(np.arange(3), np.arange(9000)) + 0.5)
    assert data.columns.labels == tuple(names)


@pytest.mark.parametrize(
    ("text", "expected", "told"),
    [
        ('"1,000",2\n3,"-1,234,567.5"\n', [[1000, 2], [3, -1234567.5]], "commas"),
        ("1,000\t2.5\n3\t4\n", [[1000, 2.5], [3, 4]], "tabs"),
        ("1,234;2\n3;4\n", [[1.234, 2], [3, 4]], "semicolons, with decimal commas"),
    ],
)
def test_commas_set_off_thousands_where_they_cannot_be_anything_else(
    tmp_path, text, expected, told
):
    (tmp_path / "d.csv").write_text(text)
    data = read(tmp_path / "d.csv", header=False, index=False)
    np.testing.assert_array_equal(data.V, expected)
    assert data.source.startswith(f"table separated by {told}; ")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("# made by us\n# on Monday\n1,2\n3,4\n", None),
        ("# made by us, on Monday\nx,y\n1,2\n3,4\n", ("x", "y")),
        ("#x,y\n1,2\n3,4\n", ("x", "y")),
        ("# first\n# x, y\n\n1,2\n3,4\n", ("x", "y")),
        ("# 5,6\n1,2\n3,4\n", None),  # a line that someone took out
        ("\ufeff# made by us\n1,2\n3,4\n", None),
        ("# it's 5\" wide\n1,2\n3,4\n", None),
    ],
)
def test_comments_before_a_table_are_passed_over(tmp_path, text, columns):
    (tmp_path / "d.csv").write_text(text, encoding="utf-8")
    data = read(tmp_path / "d.csv")
    np.testing.assert_array_equal(data.V, [[1, 2], [3, 4]])
    assert data.columns.labels == columns
    np.testing.assert_array_equal(read(tmp_path / "d.csv", header=columns == ("x", "y")).V, data.V)


@pytest.mark.parametrize("text", ["#1,2,3\n#2,4,5\n", "name,x,y\n#1,2,3\n#2,4,5\n"])
def test_names_may_begin_as_comments_do(tmp_path, text):
    (tmp_path / "d.csv").write_text(text)
    data = read(tmp_path / "d.csv")
    np.testing.assert_array_equal(data.V, [[2, 3], [4, 5]])
    assert data.rows.labels == ("#1", "#2")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("w x y z\n0 1 2 3\n4 5 6 7\n8 9 10 11\n", None),
        ("  w   x  y  z\n  0   1  2  3\n  4 5 6 7 \n\n8 \t 9 10 11\n", None),
        ('"w" "x" "y" "z"\n"a b" 0 1 2 3\n"b" 4 5 6 7\n"c" 8 9 10 11\n', ("a b", "b", "c")),
        ("id w x y z\nSmith,J 0 1 2 3\nb 4 5 6 7\nc 8 9 10 11\n", ("Smith,J", "b", "c")),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
def test_blanks_separate_where_nothing_else_does(tmp_path, text, rows, suffix):
    (tmp_path / f"d{suffix}").write_text(text)
    data = read(tmp_path / f"d{suffix}")
    np.testing.assert_array_equal(data.V, V)
    assert (data.rows.labels, data.columns.labels) == (rows, COLUMNS)
    assert data.source.startswith("table separated by blanks; ")


def test_blanks_in_names_separate_nothing(tmp_path):
    (tmp_path / "d.tsv").write_text("sample 1\t2\t3\nsample 2\t4\t5\n")
    assert read(tmp_path / "d.tsv").rows.labels == ("sample 1", "sample 2")


def test_digits_with_marks_are_names_where_the_user_says_so(tmp_path):
    (tmp_path / "d.csv").write_text("1_000,2_000\n0x10,4\n0x20,5\n")
    data = read(tmp_path / "d.csv", header=True, index=True)
    assert (data.rows.labels, data.columns.labels) == (("0x10", "0x20"), ("2_000",))
    (tmp_path / "d.csv").write_text("id,x\n0x10,4\n0x20,5\n")
    assert read(tmp_path / "d.csv").rows.labels == ("0x10", "0x20")
