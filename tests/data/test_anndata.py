"""Files of AnnData, dense and CSR: as their public format says, and as the package writes them."""

from contextlib import suppress
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse

from factormer import NMF, MiniBatchNMF, factorize, tl
from factormer.data.sources import source_of

M, N, R = 500, 100, 2
LIMIT = 1.2e6  # three copies of V, of 800 kB in float32, do not fit


def counts():
    rng = np.random.default_rng(0)
    means = rng.exponential(size=(M, R)) @ rng.exponential(size=(R, N))
    return rng.poisson(means).astype(np.float32)


def written(path, V, kind) -> Any:
    """Write what `anndata.AnnData(V).write_h5ad(path)` writes, as far as X is concerned."""
    file = h5py.File(path, "w")
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    if kind == "dense":
        X = file.create_dataset("X", data=V)
        X.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        return file
    X, csr = file.create_group("X"), scipy.sparse.csr_array(V)
    about = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": V.shape}
    X.attrs.update(about)
    for name in ("data", "indices", "indptr"):
        part = getattr(csr, name)
        X.create_dataset(name, data=part, chunks=(max(len(part) // 4, 1),), compression="gzip")
    return file


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_x_of_a_file_in_blocks_gives_the_fit_in_memory(tmp_path, kind):
    V = np.tile(counts(), (4, 1))
    with written(tmp_path / "V.h5ad", V, kind) as file:
        found = factorize(file["X"], R, memory_limit=LIMIT, random_state=0)
        assert "beyond memory" in str(found.plan)
        with pytest.raises(ValueError, match="choose it by its key"):
            source_of(file)
    inside = factorize(V, R, random_state=0)
    assert found.rmse == pytest.approx(inside.rmse, rel=1e-3)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint16, np.uint32])
def test_columns_of_few_bits_do_not_narrow_row_pointers(tmp_path, kind):
    V = scipy.sparse.csr_array(np.tile(counts(), (4, 1)))
    assert V.nnz > 2**16
    with written(tmp_path / "V.h5ad", V.toarray(), "csr") as file:
        del file["X"]["indices"]
        file["X"]["indices"] = V.indices.astype(kind)
        source = source_of(file["X"])
        assert source is not None
        np.testing.assert_array_equal(source.read(0, 4 * M).toarray(), V.toarray())


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_backed_anndata_is_read_in_blocks(tmp_path, kind):
    anndata: Any = pytest.importorskip("anndata")
    with suppress(AttributeError):  # names of rows in pandas 3, which old versions cannot read
        anndata.settings.allow_write_nullable_strings = True
    V = np.tile(counts(), (4, 1))
    X = V if kind == "dense" else scipy.sparse.csr_matrix(V)
    anndata.AnnData(X).write_h5ad(tmp_path / "V.h5ad")
    backed = anndata.read_h5ad(tmp_path / "V.h5ad", backed="r")
    inside = factorize(V, R, random_state=0)
    for given in (backed, backed.X):
        found = factorize(given, R, memory_limit=LIMIT, random_state=0)
        assert "beyond memory" in str(found.plan)
        assert found.rmse == pytest.approx(inside.rmse, rel=1e-3)
    backed.file.close()


def annotated(anndata, V) -> Any:
    """An AnnData of these cells, in two samples."""
    pandas: Any = pytest.importorskip("pandas")
    half = M // 2
    obs = pandas.DataFrame({"sample": np.repeat([0, 1], half)}, index=[f"c{k}" for k in range(M)])
    return anndata.AnnData(V, obs=obs)


def views(adata) -> dict[str, tuple[Any, Any]]:
    """Views of an AnnData, and the part of X that each is."""
    rows, columns = np.asarray(adata.obs["sample"] == 1), np.arange(N) % 3 > 0
    X = adata.X if isinstance(adata.X, np.ndarray) else adata.X[:].toarray()
    return {
        "all": (adata, X),
        "rows": (adata[rows], X[rows]),
        "columns": (adata[:, columns], X[:, columns]),
    }


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("name", ["all", "rows", "columns"])
def test_an_anndata_and_its_views_are_their_x(kind, name):
    anndata: Any = pytest.importorskip("anndata")
    V = counts()
    adata = annotated(anndata, V if kind == "dense" else scipy.sparse.csr_matrix(V))
    view, part = views(adata)[name]
    expected = factorize(part if kind == "dense" else scipy.sparse.csr_array(part), R, max_iter=9)
    for given in (view, view.X):
        np.testing.assert_allclose(factorize(given, R, max_iter=9).rmse, expected.rmse, rtol=1e-5)
        assert NMF(R, max_iter=9).fit_transform(given).shape == (len(part), R)
    written = view.copy()
    tl.fit(view, R, max_iter=9)
    tl.fit(written, R, max_iter=9)
    np.testing.assert_allclose(view.obsm["X_nmf"], written.obsm["X_nmf"])


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_view_of_a_backed_anndata_is_read_and_not_written_to(tmp_path, kind):
    anndata: Any = pytest.importorskip("anndata")
    with suppress(AttributeError):
        anndata.settings.allow_write_nullable_strings = True
    V = counts()
    adata = annotated(anndata, V if kind == "dense" else scipy.sparse.csr_matrix(V))
    adata.write_h5ad(tmp_path / "V.h5ad")
    backed = anndata.read_h5ad(tmp_path / "V.h5ad", backed="r")
    tl.fit(backed, R, max_iter=9)
    assert backed.obsm["X_nmf"].shape == (M, R)
    assert factorize(backed[:100], R, max_iter=9).W.shape == (100, R)
    with pytest.raises(ValueError, match=r"view of a backed AnnData.*part = adata\.to_memory"):
        tl.fit(backed[:100], R, max_iter=9)
    backed.file.close()


class Stand:
    """A stand-in for AnnData where it is not installed."""

    __module__ = "anndata._core.anndata"
    isbacked = is_view = False

    def __init__(self, X):
        self.X, self.layers = X, {"counts": X}


def test_x_of_an_anndata_is_meant():
    V = counts()
    found = factorize(Stand(V), R, max_iter=9)
    np.testing.assert_array_equal(found.W, factorize(V, R, max_iter=9).W)
    assert isinstance(found.W, np.ndarray)
    assert NMF(R, max_iter=9).fit_transform(Stand(V)).shape == (M, R)
    assert MiniBatchNMF(R, max_iter=2).fit_transform(Stand(V)).shape == (M, R)
    with pytest.raises(
        ValueError, match=r"AnnData without X; pass one of its layers, \['counts'\]"
    ):
        factorize(Stand(None), R)


def test_a_sparse_array_of_a_view_is_in_memory():
    kind = type("SparseCSRMatrixView", (scipy.sparse.csr_matrix,), {"__module__": "anndata.views"})
    V = counts()
    assert source_of(kind(V)) is None
    view = factorize(kind(V), R, max_iter=9)
    np.testing.assert_array_equal(view.W, factorize(scipy.sparse.csr_matrix(V), R, max_iter=9).W)
