"""Files of domains: ENVI cubes, wavelengths, folders of 10x, axes by name, mutations, sound."""

import gzip
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.io.wavfile

from factormer.app.read import Axis, read
from factormer.app.read.mutations import CLASSES, order_of, substitution
from factormer.app.read.positions import described, read_numbers
from factormer.app.read.sound import components, write_wav

CUBE = np.arange(24, dtype=np.uint16).reshape(2, 3, 4) + 1  # lines × samples × bands
ORDERS = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}
TYPES = {1: "u1", 2: "i2", 4: "f4", 5: "f8", 12: "u2"}


def write_cube(folder, *, order="bsq", kind=12, big=False, more="", suffix=".img"):
    numbers = CUBE.transpose(ORDERS[order]).astype((">" if big else "<") + TYPES[kind])
    (folder / f"cube{suffix}").write_bytes(numbers.tobytes())
    header = folder / "cube.hdr"
    header.write_text(
        "ENVI\ndescription = {\n made for a test }\nsamples = 3\nlines = 2\nbands = 4\n"
        f"header offset = 0\ndata type = {kind}\ninterleave = {order}\nbyte order = {int(big)}\n"
        + more
    )
    return header


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("kind", "big", "suffix"), [(12, False, ".img"), (4, True, ""), (5, 0, ".dat")]
)
def test_envi_cube(tmp_path, order, kind, big, suffix):
    data = read(write_cube(tmp_path, order=order, kind=kind, big=big, suffix=suffix))
    np.testing.assert_array_equal(data.V, CUBE.reshape(6, 4))
    assert data.rows.grid == (2, 3)
    assert data.columns.noun == "band"


def test_envi_wavelengths_scale_and_ignored_values(tmp_path):
    more = (
        "wavelength units = Nanometers\nwavelength = {\n 400.0, 500.0,\n 600.0, 700.5}\n"
        "data ignore value = 5\nreflectance scale factor = 10\n"
    )
    data = read(write_cube(tmp_path, more=more))
    expected = np.where(CUBE == 5, np.nan, CUBE / 10.0).reshape(6, 4)
    np.testing.assert_allclose(data.V, expected, rtol=1e-6)
    assert data.columns.positions == (400.0, 500.0, 600.0, 700.5)
    assert data.columns.unit == "nm"
    assert data.columns.noun == "wavelength"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: (f / "cube.img").unlink(), "has no data beside it; put the file"),
        (lambda f: (f / "cube.img").write_bytes(b"12"), "has 2 bytes, and its header describes 48"),
        (lambda f: (f / "cube.hdr").write_text("samples = 3"), "is not an ENVI header"),
        (lambda f: (f / "cube.hdr").write_text("ENVI\nlines = 2"), "has no 'samples'; it must be"),
    ],
)
def test_envi_that_is_damaged_gets_a_sentence(tmp_path, change, sentence):
    path = write_cube(tmp_path)
    change(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        read(path)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("400\n500\n600\n700\n", "nm"),
        ("band,um\n1,0.4\n2,0.5\n3,0.6\n4,0.7\n", "µm"),
        ("1 2 3 4", "µm"),
    ],
)
def test_wavelengths_of_a_file(tmp_path, text, unit):
    np.save(tmp_path / "data.npy", np.ones((3, 4)))
    (tmp_path / "w.txt").write_text(text)
    data = read(tmp_path / "data.npy", wavelengths=tmp_path / "w.txt")
    assert (data.columns.kind, data.columns.noun, data.columns.unit) == ("line", "wavelength", unit)
    turned = read(tmp_path / "data.npy", transpose=True, wavelengths=tmp_path / "w.txt")
    assert turned.rows.positions == data.columns.positions
    assert len(read_numbers(tmp_path / "w.txt")) == 4


def test_wavelengths_that_do_not_fit_get_a_sentence(tmp_path):
    np.save(tmp_path / "data.npy", np.ones((3, 4)))
    (tmp_path / "w.txt").write_text("1 2 3 4 5")
    with pytest.raises(ValueError, match="holds 5 wavelengths, and V has 3 rows and 4 columns"):
        read(tmp_path / "data.npy", wavelengths=tmp_path / "w.txt")
    (tmp_path / "w.txt").write_text("1 3 2 4")
    with pytest.raises(ValueError, match="neither rise nor fall"):
        read(tmp_path / "data.npy", wavelengths=tmp_path / "w.txt")
    with pytest.raises(FileNotFoundError, match="choose one with a number per line"):
        read(tmp_path / "data.npy", wavelengths=tmp_path / "none.txt")


# Axes in an .npz


def test_numbers_in_an_npz_become_axes(tmp_path):
    V = np.ones((3, 4))
    arrays = {"freq_hz": [0.0, 10.0, 20.0], "time_s": [4.0, 3.0, 2.0, 1.0], "labels": [1, 2, 3]}
    named: dict[str, Any] = {name: np.array(values) for name, values in arrays.items()}
    np.savez(tmp_path / "data.npz", V=V, **named)
    data = read(tmp_path / "data.npz")
    assert data.rows == Axis(3, "frequency", positions=(0.0, 10.0, 20.0), unit="Hz")
    assert data.columns == Axis(4, "time", positions=(4.0, 3.0, 2.0, 1.0), unit="s")


def test_numbers_that_do_not_rise_or_fit_two_sides_are_left(tmp_path):
    np.savez(tmp_path / "data.npz", V=np.ones((3, 4)), time_s=[1.0, 3.0, 2.0], bands=[1, 2])
    assert read(tmp_path / "data.npz").rows == Axis(3, "row")
    np.savez(tmp_path / "data.npz", V=np.ones((3, 3)), time_s=[1.0, 2.0, 3.0])
    assert read(tmp_path / "data.npz").rows == Axis(3, "row")


def test_names_of_lists():
    assert described("freq_hz") == ("frequency", "Hz")
    assert described("Wavelengths") == ("wavelength", "")
    assert described("labels") == ("", "")


# Single cells


def write_10x(folder, *, zipped: bool, old: bool = False, kinds: bool = False):
    counts = scipy.sparse.coo_array(np.array([[1, 0], [0, 2], [3, 4]]))  # genes × cells
    folder.mkdir()
    scipy.io.mmwrite(folder / "matrix.mtx", counts)
    genes = ["ENS1\tA", "ENS2\tB", "ENS3\tB"]
    if kinds:
        genes = [
            f"{line}\t{kind}"
            for line, kind in zip(
                genes, ["Gene Expression"] * 2 + ["Antibody Capture"], strict=True
            )
        ]
    (folder / ("genes.tsv" if old else "features.tsv")).write_text("\n".join(genes) + "\n")
    (folder / "barcodes.tsv").write_text("AAA-1\nCCC-1\n")
    if zipped:
        for path in list(folder.iterdir()):
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return folder


@pytest.mark.parametrize(("zipped", "old"), [(True, False), (False, True)])
def test_10x_folder(tmp_path, zipped, old):
    data = read(write_10x(tmp_path / "pbmc", zipped=zipped, old=old))
    np.testing.assert_array_equal(data.V.toarray(), [[1, 0, 3], [0, 2, 4]])
    assert data.name == "pbmc"
    assert data.rows == Axis(2, "cell", labels=("AAA-1", "CCC-1"))
    assert data.columns == Axis(3, "gene", labels=("A", "B (ENS2)", "B (ENS3)"))


def test_10x_features_that_are_not_genes_are_left_out(tmp_path):
    data = read(write_10x(tmp_path / "pbmc", zipped=True, kinds=True))
    np.testing.assert_array_equal(data.V.toarray(), [[1, 0], [0, 2]])
    assert "without 1 features that are not genes" in data.source


def test_10x_folder_that_lacks_a_file_gets_a_sentence(tmp_path):
    folder = write_10x(tmp_path / "pbmc", zipped=False)
    (folder / "barcodes.tsv").write_text("AAA-1\n")
    with pytest.raises(ValueError, match="is 3×2, beside 3 genes and 1 barcodes"):
        read(folder)
    (folder / "barcodes.tsv").unlink()
    with pytest.raises(ValueError, match=r"lacks barcodes.tsv; a folder of 10x holds matrix.mtx"):
        read(folder)


# Ratings


@pytest.mark.parametrize(
    "text",
    [
        "userId,movieId,rating,time\n7,a,3,1\n7,b,4,2\n9,a,1,3\n9,a,2,4\n",
        "7\ta\t3\n7\tb\t4\n9\ta\t2\n",
    ],
)
def test_ratings(tmp_path, text):
    (tmp_path / "r.csv").write_text(text)
    data = read(tmp_path / "r.csv", layout="ratings")
    np.testing.assert_array_equal(data.V.toarray(), [[3, 4], [2, 0]])
    assert (data.rows.labels, data.columns.labels) == (("7", "9"), ("a", "b"))
    assert data.rows.noun == "user"
    assert data.columns.noun in ("movie", "item")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("u,i,r\n", "holds no rating"),
        ("u,i\n", "a rating has three"),
        ("u,i,1\nu,i,x\n", "has the rating 'x'; it must be a number"),
    ],
)
def test_what_is_no_rating_gets_a_sentence(tmp_path, text, sentence):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path / "r.csv", layout="ratings")


# Mutation types


def types() -> list[str]:
    sides = "ACGT"
    return [f"{a}[{c}]{b}" for a, b, c in itertools.product(sides, sides, CLASSES)]


def test_mutation_types_and_their_order():
    labels = types()
    order = order_of(labels)
    assert order is not None
    sorted_ = [labels[i] for i in order]
    assert sorted_[0] == "A[C>A]A"
    assert sorted_[1] == "A[C>A]C"
    assert sorted_[95] == "T[T>G]T"
    assert [substitution(x)[0] for x in sorted_[::16]] == list(CLASSES)  # pyright: ignore
    assert substitution("ACG>T") == ("C>T", "ACG")
    assert substitution("A[G>T]C") is None
    assert order_of(labels[:95]) is None
    assert order_of(["A[C>A]A"] * 96) is None


def test_axes_are_called_what_they_are(tmp_path):
    np.savez(tmp_path / "data.npz", V=np.ones((96, 5)), channels=np.array(types()))
    data = read(tmp_path / "data.npz")
    assert str(data.rows).startswith("96 mutation types: ")
    assert str(data.columns) == "5 samples without labels"
    named = read(tmp_path / "data.npz", columns_are="tumours")
    assert str(named.columns) == "5 tumours without labels"
    assert str(named).startswith("data: 96 mutation types × 5 tumours; numpy array V\n")
    assert read(tmp_path / "data.npz", columns_are="batteries").columns.noun == "battery"


# Sound


def test_components_of_a_sound_are_the_sound(tmp_path):
    rate, t = 8000, np.arange(8000) / 8000
    sound = 0.4 * np.sin(2 * np.pi * 440 * t) * (t < 0.5) + 0.3 * np.sin(2 * np.pi * 1000 * t)
    write_wav(tmp_path / "a.wav", rate, sound)
    data = read(tmp_path / "a.wav")
    random = np.random.default_rng(0)
    W, H = (random.uniform(0.1, 1, (axis.size, 3)) for axis in (data.rows, data.columns))
    parts = list(components(tmp_path / "a.wav", W, H))
    assert [r for r, _ in parts] == [rate] * 3
    np.testing.assert_allclose(sum(part for _, part in parts), sound, atol=1e-4)
    with pytest.raises(ValueError, match="is not the sound that was fitted"):
        next(components(tmp_path / "a.wav", W[1:], H))
