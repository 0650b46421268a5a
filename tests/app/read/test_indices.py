"""Files of sparse matrices with wrong indices: an error that names the file, no crash."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from factormer.app.read import read

V: Any = scipy.sparse.csr_array(np.arange(12.0).reshape(4, 3) * (np.arange(12).reshape(4, 3) % 2))
DAMAGES: dict[str, dict[str, Any]] = {
    "far": {"indices": V.indices + 2**30},
    "negative": {"indices": V.indices - 5},
    "falling": {"indptr": np.array([0, 5, 2, 4, len(V.data)])},
    "beyond the end": {"indptr": np.array([0, 1, 3, 4, 2**30])},
    "late": {"indptr": np.array([1, 1, 3, 4, len(V.data)])},
    "short": {"indptr": V.indptr[:-1]},
    "fewer values": {"data": V.data[:2]},
}
each_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@each_damage
def test_npz(kind, damage):
    parts = {"data": V.data, "indices": V.indices, "indptr": V.indptr} | damage
    shape = V.shape if kind == "csr" else V.shape[::-1]
    np.savez("V.npz", format=kind.encode(), shape=shape, **parts)
    with pytest.raises(ValueError, match=r"V\.npz (is a sparse matrix that|could not be read)"):
        read("V.npz")


def test_npz_of_coordinates():
    parts = {"row": np.array([0, 2**30]), "col": np.array([0, -7]), "data": np.ones(2)}
    np.savez("V.npz", format=b"coo", shape=(4, 3), **parts)
    with pytest.raises(ValueError, match=r"V\.npz (is a sparse matrix that|could not be read)"):
        read("V.npz")


@each_damage
def test_h5ad(damage):
    h5py = pytest.importorskip("h5py")
    with h5py.File("V.h5ad", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", V.shape
        parts = {"data": V.data, "indices": V.indices, "indptr": V.indptr} | damage
        for name, values in parts.items():
            group[name] = values
        for name, size in zip(("obs", "var"), V.shape, strict=True):
            file.create_group(name)["_index"] = [f"{name} {k}" for k in range(size)]
    with pytest.raises(ValueError, match=r"V\.h5ad (is a sparse matrix that|could not be read)"):
        read("V.h5ad")


@pytest.mark.parametrize("entry", ["9 1 2.0", "0 1 2.0", "-3 1 2.0", "99999999999999999999 1 1"])
def test_mtx(entry):
    head = "%%MatrixMarket matrix coordinate real general\n4 3 1\n"
    Path("V.mtx").write_text(f"{head}{entry}\n")
    with pytest.raises(ValueError, match=r"V\.mtx could not be read"):
        read("V.mtx")


def test_mat():
    scipy.io.savemat("V.mat", {"V": scipy.sparse.csc_array(V)}, do_compression=False)
    content = Path("V.mat").read_bytes()
    rows = scipy.sparse.csc_array(V).indices.astype("<i4").tobytes()
    assert content.count(rows) == 1
    far = np.full(len(rows) // 4, 2**30, "<i4").tobytes()
    Path("V.mat").write_bytes(content.replace(rows, far))
    with pytest.raises(ValueError, match=r"V\.mat (is a sparse matrix that|could not be read)"):
        read("V.mat")


@pytest.mark.filterwarnings("error")
def test_a_damaged_npz_is_closed():
    np.savez("V.npz", V=np.ones((4, 3)))
    data = Path("V.npz").read_bytes()
    Path("V.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"V\.npz could not be read"):
        read("V.npz")
    gc.collect()  # an open file would be told here
