"""The memory limit is kept: anonymous memory of a process of its own, above what it has anyway."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from factormer import factorize

LIMIT = 3e7
SLACK = 1.5e7  # of Python and of the allocator, which do not depend on V
# What is freed goes back to the system at once, so that memory in use is what is measured.
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}

# The first fit compiles and loads what is needed; then memory that is free is given back.
FIT = """
import ctypes, gc, json, sys, threading
import numpy as np
from contextlib import suppress
from factormer import factorize

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))

def stored(path):
    if path.endswith(".npy"):
        return np.load(path, mmap_mode="r")
    if path.endswith(".parquet"):
        return __import__("pyarrow.parquet").parquet.ParquetFile(path)
    return __import__("h5py").File(path)["X"]

def fit():
    return factorize(stored(sys.argv[1]), 5, memory_limit=float(sys.argv[2]), tol=0, max_iter=8)

fit()
gc.collect()
with suppress(OSError, AttributeError):
    ctypes.CDLL(None).malloc_trim(0)
before = most = anonymous()
done = threading.Event()

def watch():
    global most
    while not done.wait(0.002):
        most = max(most, anonymous())

watcher = threading.Thread(target=watch)
watcher.start()
result = fit()
done.set()
watcher.join()
passes = int(result.trace.passes[-1])
print(json.dumps({"added": max(most, anonymous()) - before, "passes": passes}))
"""


def entries():
    rng = np.random.default_rng(0)
    W, H = (rng.random((size, 5), dtype=np.float32) for size in (8000, 2500))
    V = W @ H.T
    V += rng.random(V.shape, dtype=np.float32)
    assert V.nbytes > 2.5 * LIMIT
    return V


def as_npy(path, V):
    np.save(path, V)


def as_parquet(path, V):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({f"c{j}": column for j, column in enumerate(V.T)})
    pq.write_table(table, path, row_group_size=1000)


def as_dense_h5ad(path, V):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=V, chunks=(200, V.shape[1]), compression="lzf")


def as_sparse_h5ad(path, V):
    h5py = pytest.importorskip("h5py")
    V[np.quantile(V[:100], 0.4) > V] = 0
    csr = scipy.sparse.csr_array(V)
    assert 3 * 12 * csr.nnz > 2.5 * LIMIT
    with h5py.File(path, "w") as file:
        X = file.create_group("X")
        X.attrs.update({"encoding-type": "csr_matrix", "shape": V.shape})
        for name in ("data", "indices", "indptr"):
            part = getattr(csr, name)
            X.create_dataset(name, data=part, chunks=(min(len(part), 50000),), compression="lzf")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("V.npy", as_npy),
        ("V.parquet", as_parquet),
        ("dense.h5ad", as_dense_h5ad),
        ("sparse.h5ad", as_sparse_h5ad),
    ],
)
def test_a_fit_keeps_within_its_limit(tmp_path, name, write):
    limit = LIMIT + (4e7 if name.endswith(".parquet") else 0)  # its footer and groups take more
    write(tmp_path / name, entries())
    command = [sys.executable, "-c", FIT, str(tmp_path / name), str(limit)]
    env = os.environ | GIVEN_BACK
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["passes"] == 5
    assert found["added"] <= limit + SLACK


def test_a_limit_below_what_a_file_takes_by_itself_is_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({f"c{j}": np.ones(400) for j in range(250)})
    pq.write_table(table, tmp_path / "many.parquet", row_group_size=10)
    file = pq.ParquetFile(tmp_path / "many.parquet")
    with pytest.raises(ValueError, match=r"400×250 in 40 row groups, takes about 2.24e\+06"):
        factorize(file, 2, memory_limit=1e5)
    pq.write_table(table, tmp_path / "few.parquet", row_group_size=400)
    file = pq.ParquetFile(tmp_path / "few.parquet")
    said = r"stores 400 rows together, which take 8e\+05 bytes, and three times that must fit"
    with pytest.raises(ValueError, match=said):
        factorize(file, 2, memory_limit=2e6)
