"""Data beyond memory: products, counts of passes, checks, and each kind of store."""

from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse
import torch

from factormer.data import Dense, Sparse, cached, readings
from factormer.data.factors import Factors
from factormer.data.intake import brought
from factormer.data.memory import as_bytes
from factormer.data.outofcore import blocks_of
from factormer.data.sources import source_of

M, N, R = 60, 40, 3
LIMIT = 3e4  # a block is an eighth of that: 11 rows


def entries(density=1.0, dtype=np.float64):
    rng = np.random.default_rng(0)
    return (rng.random((M, N)) * (rng.random((M, N)) < density)).astype(dtype)


def stored_npy(folder, V):
    np.save(folder / "V.npy", V)
    return np.load(folder / "V.npy", mmap_mode="r")


def stored_h5(folder, V):
    file = h5py.File(folder / "V.h5", "w")
    return file.create_dataset("V", data=V, chunks=(4, N))


def stored_csr(folder, V):
    """As AnnData writes a sparse X."""
    group, csr = h5py.File(folder / "V.h5ad", "w").create_group("X"), scipy.sparse.csr_array(V)
    group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", V.shape
    for name in ("data", "indices", "indptr"):
        group[name] = getattr(csr, name)
    return group


def stored_parquet(folder, V):
    table = pyarrow.table({f"c{k}": V[:, k] for k in range(V.shape[1])})
    pyarrow.parquet.write_table(table, folder / "V.parquet", row_group_size=7)
    return pyarrow.parquet.ParquetFile(folder / "V.parquet")


STORES = {"npy": stored_npy, "h5": stored_h5, "csr": stored_csr, "parquet": stored_parquet}


def blocks(folder, V, store=stored_npy, limit=LIMIT) -> Any:
    source = source_of(store(folder, V))
    assert source is not None
    return blocks_of(source, limit)


@pytest.fixture(params=STORES)
def store(request):
    return STORES[request.param]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_and_errors_are_those_of_the_matrix_in_memory(tmp_path, store, dtype, rng):
    V = entries(0.3, dtype)
    B, D = blocks(tmp_path, V, store), Dense(torch.from_numpy(V))
    W, H = (torch.rand(size, R, generator=rng).to(D.dtype) for size in (M, N))
    close: Any = {"rtol": 1e-5 if dtype == np.float32 else 1e-12, "atol": 0.0}
    torch.testing.assert_close(B @ H, D @ H, **close)
    torch.testing.assert_close(B.T @ W, D.T @ W, **close)
    torch.testing.assert_close(B.normal(W).VtW, D.normal(W).VtW, **close)
    torch.testing.assert_close(B.T.normal(H).WtW, H.mT @ H, **close)
    torch.testing.assert_close(B.sq_norm(), D.sq_norm(), **close)
    torch.testing.assert_close(B.total(), D.total(), **close)
    torch.testing.assert_close(
        B.sq_error(Factors(W, H)), D.sq_error(Factors(W, H)).double(), **close
    )
    c = torch.tensor(3.0)
    torch.testing.assert_close(B.scaled(c).sq_norm(), 9 * D.sq_norm(), **close)
    torch.testing.assert_close(B.scaled(c) @ H, 3 * (D @ H), **close)
    whole = torch.cat([block for _, block in B.blocks(5)])
    torch.testing.assert_close(whole, D.entries)


def test_an_error_near_an_exact_fit_keeps_its_digits(tmp_path, rng):
    W, H = (torch.rand(size, R, generator=rng) for size in (M, N))
    V = (W @ H.mT).numpy() + np.float32(1e-4)
    error = blocks(tmp_path, V).sq_error(Factors(W, H))
    assert float(error) == pytest.approx(M * N * 1e-8, rel=1e-2)


def test_a_pass_serves_both_products_and_the_first_one_the_sums(tmp_path, rng):
    V = entries()
    B = blocks(tmp_path, V)
    X = torch.rand(N, R, generator=rng).double()
    Y, Z = B.both(X)
    assert B.record.passes == 1
    assert B.reader.traffic.n_bytes == V.nbytes
    assert float(B.total()) == pytest.approx(V.sum())
    assert float(B.sq_norm()) == pytest.approx((V**2).sum())
    assert B.record.passes == 1
    np.testing.assert_allclose(Y, V @ X.numpy())
    np.testing.assert_allclose(Z, V.T @ (V @ X.numpy()))


def test_products_of_the_last_pass_are_not_read_again(tmp_path, rng):
    B = blocks(tmp_path, entries()).scaled(torch.tensor(2.0))
    x = Factors(*(torch.rand(size, R, generator=rng).double() for size in (M, N)))
    seen = B.updated(x, lambda VH, W: W + VH)
    assert B.record.passes == 1
    assert B.knows(seen.x)
    assert not B.knows(x)
    assert B @ seen.x.H is seen.VH
    assert B.T @ seen.x.W is seen.VtW
    assert B.sq_error(seen.x) is seen.sq_error
    assert B.record.passes == 1
    np.testing.assert_allclose(seen.VtW, B.T @ seen.x.W.clone())
    assert B.record.passes == 2
    assert len(B.scaled(torch.tensor(3.0)) @ seen.x.H) == M  # of another matrix
    assert B.record.passes == 3


def test_a_sketch_takes_two_passes_and_is_kept(tmp_path, rng):
    V = entries() @ np.diag(0.5 ** np.arange(N))
    B = blocks(tmp_path, V)
    S = B.sketch(12, rng)
    assert B.record.passes == 2
    assert B.scaled(torch.tensor(2.0)).sketch(10, rng).shape == (M, N)
    assert B.record.passes == 2
    best = np.linalg.svd(V, compute_uv=False)[12:]
    lost = np.linalg.norm((S.U @ S.Z.mT).numpy() - V)
    assert lost < 1.1 * np.linalg.norm(best)
    assert float(S.lost) == pytest.approx(lost**2, rel=1e-6)


def test_blocks_keep_to_the_chunks_and_row_groups_of_a_store(tmp_path):
    V = entries()
    assert set(np.diff(blocks(tmp_path, V, stored_h5).reader.ends)) <= {8, M % 8}
    ends = blocks(tmp_path, V, stored_parquet).reader.ends
    assert set(ends) <= {*range(0, M, 7), M}
    assert max(np.diff(ends)) <= 11
    wide = blocks(tmp_path, V, stored_parquet, limit=1e5).reader.ends
    assert max(np.diff(wide)) == 35


@pytest.mark.parametrize(("bad", "words"), [(np.nan, "NaN"), (np.inf, "infinite"), (-1, "below")])
def test_bad_entries_are_found_in_the_first_pass_with_their_block(tmp_path, store, bad, words, rng):
    V = entries()
    V[25, 3] = bad
    B = blocks(tmp_path, V, store)
    with pytest.raises(ValueError, match=rf"block \d+ of \d+ of V \(rows \d+ to \d+\) .*{words}"):
        B.sketch(5, rng)
    assert B.record.passes == 1


def test_a_store_that_cannot_be_read_says_which_rows(tmp_path):
    data = stored_h5(tmp_path, entries())
    source = source_of(data)
    data.file.close()
    assert source is not None
    with pytest.raises(OSError, match=r"rows 0 to 7 of V, a h5py array, could not be read"):
        blocks_of(source, LIMIT).total()


def test_parts_of_a_memory_map_are_read_from_the_right_place(tmp_path):
    V = entries()
    mapped = stored_npy(tmp_path, V)
    for part, is_plain in ((np.s_[:], True), (np.s_[7:50], True), (np.s_[::2], False)):
        for some, own in ((mapped[part], V[part]), (mapped[part][:, 3:30], V[part][:, 3:30])):
            source = source_of(some)
            assert source is not None
            assert (source.take is not None) == (is_plain and some.shape[1] == N)
            whole = torch.cat([block for _, block in blocks_of(source, LIMIT).blocks(None)])
            np.testing.assert_array_equal(whole, own)


def can_map(path):
    """Whether this system can map a file with all its pages at once."""
    with path.open("rb") as file:
        try:
            return bool(len(cached._mapped(file.fileno(), 0, 100)))
        except OSError:
            return False


@pytest.mark.parametrize("is_cached", [True, False])
def test_rows_are_mapped_or_read_alike(tmp_path, monkeypatch, is_cached):
    monkeypatch.setattr(cached, "_is_cached", lambda *_: is_cached)
    V = np.tile(entries().astype(np.float32), (20, 40))
    source = source_of(stored_npy(tmp_path, V))
    assert source is not None
    assert source.take is not None
    room = np.zeros((len(V) - 7, V.shape[1]), np.float32)
    source.take(0, 1, room[:1])  # as each pass begins
    rows = source.take(3, len(V) - 4, room)
    np.testing.assert_array_equal(rows, V[3:-4])
    assert (rows is room) == (not (is_cached and can_map(tmp_path / "V.npy")))
    rows[0, 0] = 7.0  # changes no file
    np.testing.assert_array_equal(np.load(tmp_path / "V.npy"), V)


def test_what_is_not_in_the_file_is_in_no_cache(tmp_path):
    np.save(tmp_path / "V.npy", np.zeros((100, 4000)))
    with (tmp_path / "V.npy").open("rb") as file:
        assert not cached._is_cached(file.fileno(), 0, 4_000_000, 2**18)


def test_a_memory_map_that_is_not_its_file_is_read_itself(tmp_path):
    V = entries()
    np.save(tmp_path / "V.npy", V)
    changed = np.load(tmp_path / "V.npy", mmap_mode="c")
    changed[5, 5] = 7.0
    gone = np.load(tmp_path / "V.npy", mmap_mode="r")
    (tmp_path / "V.npy").unlink()
    np.save(tmp_path / "V.npy", V + 1)  # another file of the same name
    for mapped, own in ((changed, np.array(changed)), (gone, V)):
        source = source_of(mapped)
        assert source is not None
        assert source.take is None
        whole = torch.cat([block for _, block in blocks_of(source, LIMIT).blocks(None)])
        np.testing.assert_array_equal(whole, own)


def test_a_file_that_was_cut_says_so(tmp_path):
    mapped = stored_npy(tmp_path, entries())
    source = source_of(mapped)
    assert source is not None
    with (tmp_path / "V.npy").open("rb+") as file:
        file.truncate(M * N * 4)
    with pytest.raises(OSError, match=r"could not be read \(the file ends before the matrix does"):
        blocks_of(source, LIMIT).total()


def test_blocks_of_a_sparse_store_keep_within_the_limit_if_rows_are_uneven(tmp_path):
    V = np.zeros((600, N))
    V[:12], V[300], V[-1] = 1.0, 1.0, 1.0  # after these, rows are empty
    B = blocks(tmp_path, V, stored_csr, limit=2e4)
    sizes = [block.data.nbytes + 8 * block.nnz for _, block in B.reader.read(torch.float64)]
    assert sum(sizes) == 16 * np.count_nonzero(V)
    assert max(sizes) <= 2e4 / 8
    assert len(sizes) < 10
    np.testing.assert_array_equal(torch.cat([block for _, block in B.blocks(None)]), V)
    with pytest.raises(ValueError, match="raise memory_limit"):
        blocks_of(B.reader.source, 1500)  # which has no room for three full rows


def test_wrong_row_pointers_of_a_sparse_store_are_refused(tmp_path):
    group = stored_csr(tmp_path, entries(0.3))
    group.attrs["shape"] = (M + 1, N)
    with pytest.raises(ValueError, match=r"has 61 row pointers; they must be 62"):
        source_of(group)


def test_the_shape_of_a_sparse_store_may_be_an_array_of_it(tmp_path):
    V = entries(0.3)
    group = stored_csr(tmp_path, V)
    del group.attrs["shape"]
    with pytest.raises(ValueError, match="does not tell its shape; set"):
        source_of(group)
    group["shape"] = np.array(V.shape)
    np.testing.assert_array_equal(brought(group, "1GB").toarray(), V)
    del group.attrs["encoding-type"]
    with pytest.raises(ValueError, match="does not tell its format; set"):
        source_of(group)


def test_a_file_of_several_arrays_names_them(tmp_path):
    data = stored_h5(tmp_path, entries())
    data.file["labels"] = np.arange(M)
    with pytest.raises(ValueError, match=r"keys \['V', 'labels'\]; .* choose it by its key"):
        brought(data.file, "1GB")


def test_a_closed_file_is_said(tmp_path):
    data = stored_h5(tmp_path, entries())
    file = data.file
    file.close()
    for closed in (data, file):
        with pytest.raises(ValueError, match="that is closed; open the file again"):
            brought(closed, "1GB")


def parquet(folder, columns, **options) -> Any:
    table = columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns)
    pyarrow.parquet.write_table(table, folder / "V.parquet", **options)
    return pyarrow.parquet.ParquetFile(folder / "V.parquet")


@pytest.mark.parametrize("kind", ["uint8", "int64", "bool", "float32", "float64"])
def test_nulls_of_a_parquet_file_are_no_numbers(tmp_path, kind):
    full = [k % 2 for k in range(M)]
    nulls = [None if k % 3 == 0 else k % 2 for k in range(M)]
    columns = {name: pyarrow.array(full).cast(kind) for name in ("a", "b", "c")}
    columns["b"] = pyarrow.array(nulls).cast(kind)
    file = parquet(tmp_path, columns, row_group_size=20)
    inside = brought(file, "1GB")
    np.testing.assert_array_equal(np.isnan(inside).sum(axis=0), [0, M // 3, 0])
    np.testing.assert_array_equal(inside[1:3, 1], [1, 0])
    source = source_of(file)
    assert source is not None
    words = r"block 1 of 3 .* has 7 entries that are NaN or infinite, in column 'b'; all must"
    with pytest.raises(ValueError, match=words):
        blocks_of(source, 3600).total()


@pytest.mark.parametrize(
    "kind",
    [pyarrow.timestamp("s"), pyarrow.timestamp("s", "UTC"), pyarrow.list_(pyarrow.int8()),
     pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), pyarrow.string()],
)  # fmt: skip
def test_columns_of_a_parquet_file_that_are_no_numbers_are_named(tmp_path, kind):
    columns = {"a": pyarrow.array([1.0, 2.0]), "when": pyarrow.array([None, None]).cast(kind)}
    with pytest.raises(ValueError, match=r"column 'when' of type .*; all columns must hold real"):
        source_of(parquet(tmp_path, columns))


def test_empty_row_groups_are_no_blocks(tmp_path):
    V, empty = entries(), entries()[:0]
    names = [f"c{k}" for k in range(N)]
    tables = [pyarrow.table(list(part.T), names) for part in (empty, V[:20], empty, V[20:], empty)]
    with pyarrow.parquet.ParquetWriter(tmp_path / "V.parquet", tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    source = source_of(pyarrow.parquet.ParquetFile(tmp_path / "V.parquet"))
    assert source is not None
    B = blocks_of(source, 1e5)
    assert B.reader.ends == (0, 20, M)  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_array_equal(torch.cat([block for _, block in B.blocks(None)]), V)


def test_a_limit_below_what_is_stored_together_is_refused(tmp_path):
    source = source_of(stored_parquet(tmp_path, entries()))
    assert source is not None
    with pytest.raises(ValueError, match="smaller chunks or row groups"):
        blocks_of(source, 3000)


def test_columns_first_is_refused(tmp_path):
    group = stored_csr(tmp_path, entries())
    group.attrs["encoding-type"] = "csc_matrix"
    with pytest.raises(ValueError, match="by columns; it is read by rows"):
        source_of(group)


def test_what_fits_is_brought_into_memory(tmp_path, store):
    V = entries(0.3)
    loaded = brought(store(tmp_path, V), "1GB")
    loaded = loaded.toarray() if scipy.sparse.issparse(loaded) else loaded
    np.testing.assert_array_equal(loaded, V)
    assert brought(V, 1) is V  # which is in memory already


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4e9), ("512 MiB", 2**29), ("1.5k", 1500), (7, 7), ("90", 90)]
)
def test_memory_limits_are_bytes_or_text(text, size):
    assert as_bytes(text) == size


@pytest.mark.parametrize("bad", [
    "4 apples", "", "9" * 400, -1, 0, float("nan"), float("inf"), True, np.True_, [3], b"4GB",
    np.array([1, 2]), np.array([]), 10**400, 10**5000, 1j,
], ids=lambda bad: type(bad).__name__)  # fmt: skip
def test_other_memory_limits_are_refused(bad):
    with pytest.raises(ValueError, match=r"memory_limit is .*'4GB'"):
        as_bytes(bad)


def test_readings_in_memory_are_counted_by_the_product(rng):
    V = torch.rand(M, N, generator=rng).double()
    X = torch.rand(N, R, generator=rng).double()
    for matrix in (Dense(V), Sparse.of(scipy.sparse.csr_array(V.numpy()))):
        with readings.counted() as count, torch.no_grad():
            matrix.normal(matrix @ X)
            assert count.passes == 2
            matrix.total()
            matrix.sq_norm()
            matrix.sq_norm()  # which is kept
        assert count.passes == 4
    assert readings.so_far() == 0


def test_columns_of_one_name_are_refused(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array([1.0, 2.0])] * 3, ["a", "b", "a"])
    with pytest.raises(ValueError, match="several columns of the name 'a'; rename them"):
        source_of(parquet(tmp_path, table))
