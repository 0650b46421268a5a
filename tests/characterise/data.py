"""The matrices of the cases, by name: generated with NumPy from fixed seeds, or real ones.

Nothing here calls the package. Each matrix is planted: it has a structure that one optimum fits
much better than others, so that rounding does not decide which optimum a run ends in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse


@dataclass(frozen=True, eq=False)
class Data:
    """A matrix as a call gets it, and as the judge sees it."""

    given: Any  # what the call gets: an array, a sparse matrix, a DataFrame, a file, a list, …
    dense: tuple[np.ndarray, ...]  # the same in float64, one array for each problem
    weights: np.ndarray | None = None  # what each entry counts; zero where it is not known
    extra: dict[str, Any] | None = None  # further keywords of the call, such as the mask

    @property
    def checksum(self) -> float:
        """A number that tells data that changed from a fit that did."""
        return float(sum((A * np.arange(1, A.size + 1).reshape(A.shape)).sum() for A in self.dense))


Make = Callable[[Path], Data]
MAKERS: dict[str, Make] = {}
REAL: dict[str, Make] = {}
FOLDER = os.environ.get("FACTORMER_DATA")


def _named(name: str, makers: dict[str, Make] = MAKERS) -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        makers[name] = cache(make)
        return make

    return keep


def made(name: str, scratch: Path) -> Data:
    """Return the matrix of that name; files lie in the folder `scratch`."""
    return (MAKERS | REAL)[name](scratch)


def _data(given: Any, dense: np.ndarray | None = None, **options: Any) -> Data:
    dense = np.asarray(given if dense is None else dense, np.float64)
    return Data(given, (dense,), **options)


def factors(m: int, n: int, r: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """W and H of exponential entries, a third of which are zero."""
    draw = np.random.default_rng(seed)
    W, H = draw.exponential(size=(m, r)), draw.exponential(size=(n, r))
    return W * (draw.random((m, r)) > 1 / 3), H * (draw.random((n, r)) > 1 / 3)


def planted(m: int, n: int, r: int, noise: float = 0.5, seed: int = 0) -> np.ndarray:
    """W Hᵀ of such factors, and uniform noise."""
    W, H = factors(m, n, r, seed)
    return W @ H.T + noise * np.random.default_rng([seed, 1]).random((m, n))


def counts(m: int, n: int, r: int, mean: float, seed: int = 0) -> np.ndarray:
    """Poisson counts whose means are those of a planted matrix."""
    means = planted(m, n, r, 0.0, seed)
    return np.random.default_rng(seed + 1).poisson(mean / means.mean() * means).astype(float)


def thinned(m: int, n: int, r: int, share: float, seed: int = 0) -> np.ndarray:
    """A planted matrix of disjoint blocks, of which a share of the entries is not zero."""
    draw = np.random.default_rng(seed)
    rows, columns = np.arange(m) % r, np.arange(n) % r
    V = np.outer(1 + draw.random(m), 1 + draw.random(n)) * (rows[:, None] == columns)
    return (V + 0.2 * draw.random((m, n))) * (draw.random((m, n)) < share)


# Kinds of arrays


@_named("noisy")
def _noisy(scratch: Path) -> Data:
    return _data(planted(120, 80, 5))


@_named("noisy-large")
def _noisy_large(scratch: Path) -> Data:
    return _data(planted(1000, 500, 20, 0.5, seed=1))


@_named("noisy-wide")
def _noisy_wide(scratch: Path) -> Data:
    return _data(planted(60, 900, 6, 0.2, seed=2))


@_named("float32")
def _float32(scratch: Path) -> Data:
    return _data(planted(120, 80, 5).astype(np.float32))


@_named("by-columns")
def _by_columns(scratch: Path) -> Data:
    return _data(np.asfortranarray(planted(300, 200, 8, seed=3)))


@_named("csr")
def _csr(scratch: Path) -> Data:
    dense = thinned(600, 400, 6, 0.2)
    return _data(scipy.sparse.csr_array(dense), dense)


@_named("csc")
def _csc(scratch: Path) -> Data:
    dense = thinned(600, 400, 6, 0.2)
    return _data(scipy.sparse.csc_matrix(dense), dense)


@_named("coo")
def _coo(scratch: Path) -> Data:
    dense = thinned(300, 200, 5, 0.2, seed=4).astype(np.float32)
    return _data(scipy.sparse.coo_array(dense), dense)


@_named("frame")
def _frame(scratch: Path) -> Data:
    import pandas

    dense = planted(90, 40, 4, seed=5)
    labels = [f"sample {i}" for i in range(90)]
    return _data(pandas.DataFrame(dense, labels, [f"gene {j}" for j in range(40)]), dense)


@_named("tensor")
def _tensor(scratch: Path) -> Data:
    import torch

    dense = planted(100, 60, 4, seed=6)
    return _data(torch.from_numpy(dense.copy()), dense)


@_named("memmap")
def _memmap(scratch: Path) -> Data:
    dense = planted(800, 300, 4, seed=7)
    np.save(scratch / "memmap.npy", dense)
    limit = {"memory_limit": "3MB"}
    return _data(np.load(scratch / "memmap.npy", mmap_mode="r"), dense, extra=limit)


@_named("hdf5")
def _hdf5(scratch: Path) -> Data:
    import h5py

    dense = counts(800, 300, 4, 5.0, seed=8)
    with h5py.File(scratch / "counts.h5", "w") as file:
        file.create_dataset("V", data=dense, chunks=(50, 300))
    stored = h5py.File(scratch / "counts.h5")["V"]
    return _data(stored, dense, extra={"memory_limit": "4MB"})


@_named("dask")
def _dask(scratch: Path) -> Data:
    import dask.array

    dense = planted(400, 150, 4, seed=9)
    chunked: Any = dask.array.from_array(dense, chunks="auto")
    return _data(chunked.rechunk((100, 150)), dense)


@_named("stack")
def _stack(scratch: Path) -> Data:
    members = np.stack([planted(30, 20, 3, seed=10 + k) for k in range(4)])
    return Data(members, tuple(members))


@_named("list")
def _list(scratch: Path) -> Data:
    shapes = [(40, 30, 3), (25, 60, 4), (300, 90, 6)]
    members = [planted(m, n, r, seed=20 + m) for m, n, r in shapes]
    sparse = thinned(200, 150, 4, 0.2, seed=24)
    return Data([*members, scipy.sparse.csr_array(sparse)], (*members, sparse))


# Entries that are unknown, or count more


@_named("nan")
def _nan(scratch: Path) -> Data:
    dense = planted(120, 80, 5)
    known = np.random.default_rng(30).random(dense.shape) > 0.2
    given = np.where(known, dense, np.nan)
    return Data(given, (dense,), known.astype(float))


@_named("mask")
def _mask(scratch: Path) -> Data:
    dense = planted(120, 80, 5)
    known = np.random.default_rng(30).random(dense.shape) > 0.2
    return Data(dense, (dense,), known.astype(float), {"mask": known})


@_named("ratings")
def _ratings(scratch: Path) -> Data:
    dense = planted(150, 60, 3, seed=31) + 0.5
    known = np.random.default_rng(32).random(dense.shape) < 0.5
    given = scipy.sparse.csr_array(dense * known)
    return Data(given, (dense,), known.astype(float), {"missing": "zeros"})


@_named("weights")
def _weights(scratch: Path) -> Data:
    dense = planted(120, 80, 5)
    weights = np.random.default_rng(33).uniform(0.1, 10.0, dense.shape)
    return Data(dense, (dense,), weights, {"weights": weights})


@_named("row-weights")
def _row_weights(scratch: Path) -> Data:
    dense = planted(120, 80, 5)
    rows = np.random.default_rng(34).uniform(0.5, 4.0, len(dense))
    return Data(dense, (dense,), np.repeat(rows[:, None], 80, 1), {"weights": rows})


# Counts and other positive data


@_named("counts")
def _counts(scratch: Path) -> Data:
    return _data(counts(96, 60, 4, 20.0, seed=40))


@_named("counts-large")
def _counts_large(scratch: Path) -> Data:
    return _data(counts(300, 150, 5, 10.0, seed=41))


@_named("counts-sparse")
def _counts_sparse(scratch: Path) -> Data:
    dense = counts(400, 300, 4, 0.5, seed=42)
    return _data(scipy.sparse.csr_array(dense), dense)


@_named("positive")
def _positive(scratch: Path) -> Data:
    draw = np.random.default_rng(43)
    means = planted(70, 50, 3, 0.2, seed=43) + 0.1
    return _data(means * draw.gamma(20.0, 1 / 20, means.shape))


@_named("shares")
def _shares(scratch: Path) -> Data:
    draw = np.random.default_rng(44)
    abundances = draw.dirichlet(np.full(3, 0.5), 200)
    return _data(abundances @ draw.random((3, 40)) + 0.01 * draw.random((200, 40)))


@_named("smooth")
def _smooth(scratch: Path) -> Data:
    draw, x = np.random.default_rng(45), np.linspace(0, 1, 100)
    centres = np.array([0.2, 0.5, 0.8])
    H = np.exp(-(((x[:, None] - centres) / 0.1) ** 2))
    return _data(draw.exponential(size=(50, 3)) @ H.T + 0.2 * draw.random((50, 100)))


@_named("ranked")
def _ranked(scratch: Path) -> Data:
    draw = np.random.default_rng(48)
    W, H = draw.gamma(0.5, size=(120, 4)), draw.gamma(0.5, size=(70, 4))
    return _data(np.maximum(W @ H.T + 0.2 * draw.normal(size=(120, 70)), 0))


@_named("symmetric")
def _symmetric(scratch: Path) -> Data:
    H = planted(60, 4, 4, 0.0, seed=46)
    noise = 1.5 * np.random.default_rng(47).random((60, 60))
    return _data(H @ H.T + noise + noise.T)


# Easy ones, and degenerate ones


@_named("exact")
def _exact(scratch: Path) -> Data:
    return _data(planted(120, 150, 6, 0.0, seed=50))


@_named("zeros")
def _zeros(scratch: Path) -> Data:
    return _data(np.zeros((30, 20)))


@_named("zeros-sparse")
def _zeros_sparse(scratch: Path) -> Data:
    return _data(scipy.sparse.csr_array((30, 20)), np.zeros((30, 20)))


@_named("constant")
def _constant(scratch: Path) -> Data:
    return _data(np.full((40, 30), 7.0))


@_named("rank-1")
def _rank_1(scratch: Path) -> Data:
    draw = np.random.default_rng(51)
    return _data(np.outer(draw.random(70), draw.random(50)))


@_named("one-row")
def _one_row(scratch: Path) -> Data:
    return _data(np.random.default_rng(52).random((1, 40)))


@_named("one-column")
def _one_column(scratch: Path) -> Data:
    return _data(np.random.default_rng(53).random((40, 1)))


@_named("small")
def _small(scratch: Path) -> Data:
    return _data(np.random.default_rng(54).random((6, 5)))


@_named("tiny-scale")
def _tiny_scale(scratch: Path) -> Data:
    return _data(1e-170 * planted(60, 40, 3, seed=55))


@_named("huge-scale")
def _huge_scale(scratch: Path) -> Data:
    return _data(1e150 * planted(60, 40, 3, seed=55))


@_named("nearly-dependent")
def _nearly_dependent(scratch: Path) -> Data:
    draw = np.random.default_rng(56)
    H = 1 + 0.1 * draw.random((60, 2))
    return _data(draw.random((80, 2)) @ H.T + 0.03 * draw.random((80, 60)))


@_named("gaps")
def _gaps(scratch: Path) -> Data:
    dense = planted(80, 60, 4, seed=57)
    dense[::7], dense[:, ::5] = 0.0, 0.0
    return _data(dense)


@_named("rank-10")
def _rank_10(scratch: Path) -> Data:
    return _data(planted(120, 100, 10, 0.3, seed=58))


@_named("digits")
def _digits(scratch: Path) -> Data:
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    return _data(np.asarray(digits.data))


# Real matrices, where FACTORMER_DATA names their folder


def _real(name: str, file: str, transpose: bool = False, sparse: bool = False) -> None:
    def make(scratch: Path) -> Data:
        path = Path(FOLDER or "") / f"{file}.npz"
        if sparse:
            given = scipy.sparse.csr_array(scipy.sparse.load_npz(path)).astype(float)
            return _data(given, given.toarray())
        V = np.load(path)["V"].astype(float)
        return _data(np.ascontiguousarray(V.T if transpose else V))

    _named(name, REAL)(make)


_real("yale", "yale_faces_64")
_real("jasper", "jasper_ridge", transpose=True)
_real("brca", "brca_sbs96")
_real("piano", "audio_piano_spectrogram")
_real("cells", "pbmc_sctransform_counts", sparse=True)
_real("news", "bbc_news", sparse=True)
