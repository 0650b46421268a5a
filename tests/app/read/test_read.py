"""Readers: each format gives the matrix that was written, its labels, and a sentence when wrong."""

import gzip
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.io.wavfile
import scipy.sparse

from factormer.app.read import FORMATS, Axis, arrays, pictures, read, read_beside

V = np.arange(12.0).reshape(3, 4)
ROWS, COLUMNS = ("a", "b", "c"), ("w", "x", "y", "z")


def write_h5ad(path: Path, kind: str) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        if kind == "dense":
            file["X"] = V
        else:
            X = scipy.sparse.csr_array(V) if kind == "csr" else scipy.sparse.csc_array(V)
            group = file.create_group("X")
            group.attrs["encoding-type"] = f"{kind}_matrix"
            group.attrs["shape"] = V.shape
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(X, name)
        for name, labels in (("obs", ROWS), ("var", COLUMNS)):
            group = file.create_group(name)
            group.attrs["_index"] = "names"
            group["names"] = list(labels)
        file.create_group("layers")["counts"] = 2 * V


def dense(data) -> np.ndarray:
    return data.V.toarray() if scipy.sparse.issparse(data.V) else data.V


# Arrays


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int64, np.bool_, np.float16, np.float32, np.float64]
)
def test_npy(tmp_path, dtype):
    np.save(tmp_path / "data.npy", V.astype(dtype))
    data = read(tmp_path / "data.npy")
    np.testing.assert_array_equal(data.V, V.astype(dtype))
    assert data.V.dtype == (np.float32 if dtype in (np.float16, np.float32) else np.float64)
    assert (data.name, data.rows, data.columns) == ("data", Axis(3, "row"), Axis(4, "column"))


def test_npz_takes_labels_and_image_shape_where_they_fit_one_side(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, V=V, genes=np.array(COLUMNS), other=np.array(["far", "off"]), scale=3.0)
    assert read(path).columns.labels == COLUMNS
    assert read(path).rows.labels is None
    np.savez(path, only=V, image_shape=np.array([2, 2]))
    data = read(path)
    assert (data.columns.grid, data.columns.noun, data.columns.kind) == ((2, 2), "pixel", "image")


def test_npz_of_a_square_matrix_says_by_name_which_side_labels_belong_to(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, V=np.ones((3, 3)), column_labels=np.array(ROWS), loose=np.array(ROWS))
    data = read(path)
    assert (data.rows.labels, data.columns.labels) == (None, ROWS)


def test_sparse_npz_stays_sparse(tmp_path):
    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.coo_array(V.astype(np.uint8)))
    data = read(tmp_path / "s.npz")
    assert scipy.sparse.issparse(data.V)
    np.testing.assert_array_equal(dense(data), V)


@pytest.mark.parametrize("key", [None, "fea"])
def test_mat(tmp_path, key):
    scipy.io.savemat(tmp_path / "d.mat", {"fea": V, "gnd": np.ones((3, 1))})
    np.testing.assert_array_equal(read(tmp_path / "d.mat", key=key).V, V)


def test_mat_of_version_73_is_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "d.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["V"] = V.T
    header = b"MATLAB 7.3 MAT-file".ljust(116) + bytes(8) + struct.pack("<H", 0x0200) + b"IM"
    with path.open("r+b") as file:
        file.write(header)
    np.testing.assert_array_equal(read(path).V, V)


@pytest.mark.parametrize("compressed", [False, True])
def test_mtx(tmp_path, compressed):
    path = tmp_path / "d.mtx"
    scipy.io.mmwrite(path, scipy.sparse.coo_array(V))
    if compressed:
        path.with_name("d.mtx.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = path.with_name("d.mtx.gz")
    data = read(path)
    assert (scipy.sparse.issparse(data.V), data.name) == (True, "d")
    np.testing.assert_array_equal(dense(data), V)


@pytest.mark.parametrize(("layout", "sides"), [("images", (2, 12)), ("cube", (6, 4))])
def test_three_axes_are_images_or_a_cube(tmp_path, layout, sides):
    values = np.arange(24.0).reshape(2, 3, 4)
    np.save(tmp_path / "d.npy", values)
    data = read(tmp_path / "d.npy", layout=layout)
    assert data.V.shape == sides
    np.testing.assert_array_equal(data.V.ravel(), values.ravel())
    grid = data.columns.grid if layout == "images" else data.rows.grid
    assert grid == ((3, 4) if layout == "images" else (2, 3))


# Cells, images, sound


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_h5ad(tmp_path, kind):
    write_h5ad(tmp_path / "d.h5ad", kind)
    data = read(tmp_path / "d.h5ad")
    np.testing.assert_array_equal(dense(data), V)
    assert (data.rows.labels, data.columns.labels) == (ROWS, COLUMNS)
    assert (data.rows.noun, data.columns.noun) == ("cell", "gene")
    np.testing.assert_array_equal(read(tmp_path / "d.h5ad", key="counts").V, 2 * V)


def write_images(folder: Path, sizes: list[tuple[int, int]], mode: str = "L") -> None:
    images = pytest.importorskip("PIL.Image")
    for k, (height, width) in enumerate(sizes, 1):
        image = images.new(mode, (width, height), 100 * k if mode == "L" else 20000 * k)
        image.save(folder / f"picture{k}.png")


def test_folder_of_images_is_ordered_as_people_count(tmp_path):
    write_images(tmp_path, [(2, 3)] * 11)
    (tmp_path / "notes.txt").write_text("not an image")
    data = read(tmp_path)
    assert data.V.shape == (11, 6)
    assert data.rows.labels is not None
    assert data.rows.labels[1::9] == ("picture2", "picture11")
    assert data.columns.grid == (2, 3)
    np.testing.assert_allclose(data.V[:2, 0], [100 / 255, 200 / 255], rtol=1e-6)


def test_images_of_sixteen_bits_keep_them(tmp_path):
    write_images(tmp_path, [(2, 2)] * 2, mode="I;16")
    np.testing.assert_allclose(read(tmp_path).V[:, 0], [20000 / 65535, 40000 / 65535], rtol=1e-6)


@pytest.mark.parametrize("mode", ["L", "I;16"])
def test_resizing_keeps_the_mean_grey(tmp_path, mode):
    write_images(tmp_path, [(4, 4)] * 2, mode=mode)
    plain, small = read(tmp_path).V, read(tmp_path, resize="2x2").V
    np.testing.assert_allclose(small.mean(axis=1), plain.mean(axis=1), rtol=1e-5)
    assert small.dtype == plain.dtype


def test_images_of_many_sizes_are_resized_when_asked(tmp_path):
    write_images(tmp_path, [(4, 4), (8, 6)])
    with pytest.raises(ValueError, match="resize them by --resize 4x4"):
        read(tmp_path)
    assert read(tmp_path, resize="2x3").columns.grid == (2, 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_is_a_spectrogram_with_its_peak_where_the_tone_is(tmp_path, dtype, channels):
    rate, seconds, tone = 8000, 0.5, 1000.0
    sound = 0.5 * np.sin(2 * np.pi * tone * np.arange(int(rate * seconds)) / rate)
    if dtype == np.uint8:
        sound = (128 + 127 * sound).round()
    elif dtype != np.float32:
        sound = (np.iinfo(dtype).max * sound).round()
    sound = np.stack([sound] * channels, axis=1).squeeze().astype(dtype)
    scipy.io.wavfile.write(tmp_path / "tone.wav", rate, sound)
    data = read(tmp_path / "tone.wav")
    assert data.columns.positions is not None
    assert data.columns.positions[int(data.V.mean(axis=0).argmax())] == pytest.approx(tone, abs=16)
    assert data.V.max() == pytest.approx(0.25, rel=0.05)  # half of it is at −1000 Hz
    assert (data.rows.unit, data.columns.unit, data.columns.kind) == ("s", "Hz", "line")


# What the user says


def test_transpose_takes_the_labels_along(tmp_path):
    (tmp_path / "d.csv").write_text("w,x\n1,2\n3,4\n5,6\n")
    data = read(tmp_path / "d.csv", transpose=True)
    np.testing.assert_array_equal(data.V, [[1, 3, 5], [2, 4, 6]])
    assert data.rows.labels == ("w", "x")


def test_labels_come_from_files(tmp_path):
    np.save(tmp_path / "d.npy", V)
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    assert read(tmp_path / "d.npy", row_labels=tmp_path / "names.txt").rows.labels == ROWS
    with pytest.raises(ValueError, match="there are 3 labels for 4 columns of V"):
        read(tmp_path / "d.npy", column_labels=tmp_path / "names.txt")


def test_axis_is_drawn_as_the_user_says(tmp_path):
    np.save(tmp_path / "d.npy", V)
    data = read(tmp_path / "d.npy", columns_are="2x2", rows_are="line")
    assert (data.columns.kind, data.columns.grid, data.rows.kind) == ("image", (2, 2), "line")
    with pytest.raises(ValueError, match="an image of 3×3 has 9 pixels, but V has 4 columns"):
        read(tmp_path / "d.npy", columns_are="3x3")
    with pytest.raises(ValueError, match="rows cannot be drawn as 'round'; choose"):
        read(tmp_path / "d.npy", rows_are="round")


def test_numbers_that_rise_make_a_line_and_others_labels():
    numbers = [str(400 + 10 * k) for k in range(8)]
    assert Axis(8, "band").labelled(numbers).kind == "line"
    assert Axis(8, "band").labelled(numbers[::-1]).kind == "line"
    assert Axis(8, "band").labelled(["1", "0", *numbers[2:]]).kind == "labels"
    assert Axis(3, "band").labelled(["1", "2", "3"]).kind == "labels"


def test_entries_are_named_as_people_count():
    assert Axis(4, "row").name(0) == "row 1"
    assert Axis(4, "pixel", grid=(2, 2)).name(2) == "pixel (2, 1)"
    assert Axis(2, "frame", positions=(0.0, 0.5), unit="s").name(1) == "0.5 s"
    assert Axis(2, "row", labels=("x", "y")).name(1) == "y"


def test_checksum_is_of_the_numbers_not_of_the_file(tmp_path):
    np.save(tmp_path / "a.npy", V)
    np.savez(tmp_path / "b.npz", V=V)
    np.save(tmp_path / "c.npy", V + 1)
    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.csr_array(V))
    sums = [read(tmp_path / name).checksum() for name in ("a.npy", "b.npz", "c.npy", "s.npz")]
    assert sums[0] == sums[1]
    assert len(set(sums)) == 3


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        (Axis(3, "row"), "3 rows without labels"),
        (Axis(3, "gene", labels=ROWS), "3 genes: a, b, c"),
        (Axis(9, "row", labels=tuple("abcdefghi")), "9 rows: a, b, …, i"),
        (Axis(4, "pixel", grid=(2, 2)), "4 pixels of 2×2"),
        (Axis(1, "frequency"), "1 frequency without labels"),
        (Axis(2, "frequency"), "2 frequencies without labels"),
        (Axis(2, "day"), "2 days without labels"),
        (Axis(2, "frame", positions=(0.0, 0.5), unit="s"), "2 frames from 0 s to 0.5 s"),
    ],
)
def test_an_axis_tells_what_it_is(axis, told):
    assert str(axis) == told


# What is wrong


@pytest.mark.parametrize(
    ("name", "option", "kinds"),
    [
        ("d.npy", {"key": "V"}, r"\.npz, \.mat, \.h5ad"),
        ("d.csv", {"layout": "cube"}, r"\.npy, \.npz, \.mat"),
        ("d.npy", {"header": True}, r"\.csv, \.csv\.gz, \.tsv, \.tsv\.gz"),
        ("d.csv", {"resize": "2x2"}, "folders of images"),
        ("", {"index": False}, r"\.csv, .*\.parquet"),
    ],
)
def test_what_says_nothing_about_a_file_is_refused(tmp_path, name, option, kinds):
    (tmp_path / "d.csv").write_text("1,2\n3,4\n")
    np.save(tmp_path / "d.npy", V)
    with pytest.raises(
        ValueError, match=f"--{next(iter(option))} does not apply to .*: it is for {kinds}"
    ):
        read(tmp_path / name, **option)


def test_what_is_said_of_the_data_serves_what_goes_with_it(tmp_path):
    (tmp_path / "d.csv").write_text("1,2\n3,4\n5,6\n")
    np.save(tmp_path / "d.npy", V)
    said = {"header": True, "index": None}
    assert read_beside(tmp_path / "d.csv", said).V.shape == (2, 2)
    assert read_beside(tmp_path / "d.npy", said, transpose=True).V.shape == (4, 3)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("content", [b"", b"rubbish, and no array"])
def test_junk_by_the_name_of_an_array_is_no_matter_of_pickles(tmp_path, suffix, content):
    (tmp_path / f"junk{suffix}").write_bytes(content)
    with pytest.raises(ValueError, match=rf"not an {suffix} file, despite its name; write"):
        read(tmp_path / f"junk{suffix}")


def test_labels_that_are_not_there_or_no_text_get_a_sentence(tmp_path):
    np.save(tmp_path / "d.npy", V)
    with pytest.raises(
        FileNotFoundError, match=r"there is no file .*names.txt; choose one with a label"
    ):
        read(tmp_path / "d.npy", row_labels=tmp_path / "names.txt")
    with pytest.raises(ValueError, match=r"d.npy is not UTF-8 text"):
        read(tmp_path / "d.npy", row_labels=tmp_path / "d.npy")


@pytest.mark.parametrize("suffix", FORMATS)
def test_rubbish_gets_a_sentence_that_names_the_file(tmp_path, suffix):
    path = tmp_path / f"rubbish{suffix}"
    path.write_bytes(b"\x00\x01nonsense\xff\xfe" * 7)
    with pytest.raises(ValueError, match="rubbish") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_empty_file_gets_one_too(tmp_path, suffix):
    path = tmp_path / f"empty{suffix}"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="empty"):
        read(path)


def test_wrong_arrays_are_told_what(tmp_path):
    def saved(**arrays):
        np.savez(tmp_path / "d.npz", **arrays)
        return tmp_path / "d.npz"

    with pytest.raises(
        ValueError, match=r"has the arrays \['A', 'B'\]; choose the matrix with --key"
    ):
        read(saved(A=V, B=V))
    with pytest.raises(ValueError, match=r"has no array 'C'; it has \['A', 'B'\]"):
        read(saved(A=V, B=V), key="C")
    with pytest.raises(ValueError, match="has no matrix of numbers"):
        read(saved(A=np.ones(3)))
    with pytest.raises(ValueError, match=r"has three axes.*use --layout images"):
        read(saved(V=np.ones((2, 2, 2))))
    with pytest.raises(ValueError, match="layout is 'round'"):
        read(saved(V=np.ones((2, 2, 2))), layout="round")
    with pytest.raises(ValueError, match="--layout is for arrays of three"):
        read(saved(V=V), layout="cube")
    np.save(tmp_path / "c.npy", V * 1j)
    with pytest.raises(ValueError, match="holds complex128 values; it must hold real numbers"):
        read(tmp_path / "c.npy")
    np.save(tmp_path / "e.npy", np.ones((0, 3)))
    with pytest.raises(ValueError, match="holds no entries"):
        read(tmp_path / "e.npy")


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "p.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(
        ValueError, match=r"p.npy could not be read as a numpy array: it is damaged, or holds Pyt"
    ):
        read(tmp_path / "p.npy")


def test_an_archive_that_unpacks_to_more_than_there_is_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "memory", lambda: 1e6)
    np.savez_compressed(tmp_path / "bomb.npz", V=np.zeros((1000, 1000)))
    with pytest.raises(ValueError, match=r"bomb.npz unpacks to 0.0 GB, which is more than half"):
        read(tmp_path / "bomb.npz")


def test_an_array_that_says_to_be_larger_than_its_file_is_refused(tmp_path):
    np.save(tmp_path / "cut.npy", np.ones((30, 30)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:900])
    with pytest.raises(ValueError, match=r"cut.npy could not be read as a numpy array"):
        read(tmp_path / "cut.npy")


def test_an_archive_of_something_else_has_no_matrix(tmp_path):
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    with pytest.raises(ValueError, match="has no matrix of numbers"):
        read(tmp_path / "text.npz")


def test_text_in_another_encoding_is_told(tmp_path):
    (tmp_path / "d.csv").write_bytes("caf\u00e9,b\n1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"d.csv is not UTF-8 text .*; save it as UTF-8"):
        read(tmp_path / "d.csv")


def test_images_that_are_too_large_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    write_images(tmp_path, [(40, 40)])
    monkeypatch.setattr(pictures, "_PIXELS", 1000)
    with pytest.raises(ValueError, match=r"picture1.png is 40×40; it may have 1000 pixels at most"):
        read(tmp_path)


def test_sound_of_a_few_samples_a_second_is_refused(tmp_path):
    scipy.io.wavfile.write(tmp_path / "s.wav", 1, np.ones(100, np.int16))
    with pytest.raises(ValueError, match="has 1 samples a second; sound must have 100 at least"):
        read(tmp_path / "s.wav")


def test_absent_files_and_empty_folders_are_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere.csv"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="holds no image"):
        read(tmp_path)


def test_short_sound_is_refused(tmp_path):
    scipy.io.wavfile.write(tmp_path / "s.wav", 8000, np.zeros(100, np.int16))
    with pytest.raises(ValueError, match=r"lasts 0.013 s; it must last 0.064 s at least"):
        read(tmp_path / "s.wav")


@pytest.mark.parametrize(
    ("name", "package"),
    [("d.parquet", "pyarrow.parquet"), ("d.h5ad", "h5py"), ("folder", "PIL.Image")],
)
def test_a_missing_package_is_named_with_its_remedy(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    path = tmp_path / name
    path.mkdir() if name == "folder" else path.write_bytes(b"x")
    with pytest.raises(ImportError, match=r"pip install 'factormer\[read\]'"):
        read(path)


def test_a_matrix_market_file_that_was_cut_is_refused(tmp_path):
    path = tmp_path / "cut.mtx"
    scipy.io.mmwrite(path, scipy.sparse.random_array((30, 20), density=0.5, rng=0))
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ValueError, match=r"ends after \d+ of 300 entries"):
        read(path)
