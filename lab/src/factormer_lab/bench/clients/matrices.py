"""Matrices for the clients: real ones of FACTORMER_DATA, and counts made by a fixed seed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse


class Named(NamedTuple):
    """A matrix with names of its rows and columns."""

    V: Any
    rows: list[str]
    columns: list[str]


def cells(count: int = 559, genes: int = 2000, programs: int = 8, seed: int = 0) -> Named:
    """Counts of genes in cells, (cells, genes): Poisson, a quarter of the entries above 0.

    Cells mix a few programs and differ in depth, genes differ in how much they are read. Each gene
    is seen in three cells at least, as is usual after filtering.
    """
    rng = np.random.default_rng(seed)
    drawn = 2 * genes
    spectra = rng.gamma(0.3, size=(programs, drawn)) * rng.lognormal(0, 1.5, drawn)
    spectra /= spectra.sum(axis=1, keepdims=True)
    usages = rng.dirichlet(np.full(programs, 0.3), count)
    depth = rng.lognormal(np.log(2500), 0.4, count)
    V = rng.poisson(depth[:, None] * (usages @ spectra))
    V = V[:, ((V > 0).sum(axis=0) >= 3).nonzero()[0][:genes]]
    return Named(
        scipy.sparse.csr_matrix(V.astype(float)),
        [f"cell{i}" for i in range(count)],
        [f"gene{j}" for j in range(V.shape[1])],
    )


def pbmc() -> Named:
    """The counts of blood cells that come with sctransform, 283×914."""
    V = scipy.sparse.csr_matrix(
        scipy.sparse.load_npz(_folder() / "pbmc_sctransform_counts.npz"), dtype=float
    )
    with np.load(_folder() / "pbmc_sctransform_counts.meta.npz") as names:
        return Named(V, names["cells"].tolist(), names["genes"].tolist())


def brca() -> Named:
    """Mutations of 96 kinds in 100 breast cancers."""
    with np.load(_folder() / "brca_sbs96.npz") as file:
        return Named(file["V"].astype(int), file["channels"].tolist(), file["samples"].tolist())


def small_cells() -> Named:
    """Few cells and genes, for a quick look."""
    return cells(120, 300, 5)


def mutations() -> Named:
    """Mutations of 96 kinds in 12 samples, of three signatures, for a quick look."""
    rng = np.random.default_rng(0)
    changes = [f"{a}[{c}]{b}" for c in _CHANGES for a in "ACGT" for b in "ACGT"]
    signatures = rng.dirichlet(np.full(96, 0.1), 3)
    V = rng.poisson(rng.gamma(1.0, 1000.0, size=(12, 3)) @ signatures).T
    return Named(V, changes, [f"sample{j}" for j in range(12)])


_CHANGES = ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
MATRICES = {
    "generated": cells,
    "generated-small": small_cells,
    "generated-mutations": mutations,
    "pbmc": pbmc,
    "brca": brca,
}


def _folder() -> Path:
    folder = os.environ.get("FACTORMER_DATA")
    if not folder:
        raise SystemExit("FACTORMER_DATA names no folder; set it to the one with the real data")
    return Path(folder).expanduser()
