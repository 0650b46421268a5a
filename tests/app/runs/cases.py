"""Small data of every kind, for runs and their reports."""

import numpy as np
import scipy.sparse

from factormer.app.read import Axis, Data


def images(m: int = 40, side: int = 6) -> Data:
    rng = np.random.default_rng(0)
    V = (rng.random((m, 3)) ** 2) @ (rng.random((3, side**2)) ** 4)
    columns = Axis(side**2, "pixel", grid=(side, side))
    return Data(V, Axis(m, "image"), columns, "images", "made up")


def topics(m: int = 30, n: int = 20, name: str = "term") -> Data:
    rng = np.random.default_rng(1)
    V = rng.poisson(rng.random((m, 3)) ** 3 @ rng.random((3, n)) ** 2 * 3).astype(np.float64)
    labels = [tuple(f"{word} {i}" for i in range(k)) for word, k in (("text", m), (name, n))]
    rows, columns = Axis(m, "text", labels=labels[0]), Axis(n, "term", labels=labels[1])
    return Data(scipy.sparse.csr_array(V), rows, columns, "topics", "made up")


def counts() -> Data:
    """Counts that two components make up."""
    rng = np.random.default_rng(0)
    V = rng.poisson(20 * rng.gamma(0.4, size=(40, 2)) @ rng.gamma(0.4, size=(2, 20)))
    return Data(V.astype(float), Axis(40, "gene"), Axis(20, "sample"), "counts", "made up")


def cube(height: int = 7, width: int = 5, bands: int = 12) -> Data:
    rng = np.random.default_rng(2)
    V = rng.random((height * width, 3)) @ rng.random((3, bands))
    rows = Axis(height * width, "pixel", grid=(height, width))
    return Data(V, rows, Axis(bands, "band", is_ordered=True), "cube", "made up")


def sound(frames: int = 30, n: int = 24) -> Data:
    rng = np.random.default_rng(3)
    V = rng.random((frames, 2)) ** 3 @ rng.random((2, n)) ** 6
    rows = Axis(frames, "frame", positions=tuple(0.1 * t for t in range(frames)), unit="s")
    hertz = tuple(100.0 * f for f in range(n))
    return Data(V, rows, Axis(n, "frequency", positions=hertz, unit="Hz"), "sound", "made up")


def holes() -> Data:
    """A plain matrix in which entries, and one row, are not known."""
    rng = np.random.default_rng(4)
    V = rng.random((15, 3)) @ rng.random((3, 10))
    V[rng.random(V.shape) < 0.2] = np.nan
    return Data(V, Axis(15, "row"), Axis(10, "column"), "holes", "made up")


def mutations() -> Data:
    """Counts of the 96 types of mutations in twelve tumours, of two signatures."""
    rng = np.random.default_rng(5)
    labels = tuple(
        f"{before}[{kind}]{after}"
        for kind in ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
        for before in "ACGT"
        for after in "ACGT"
    )
    V = rng.poisson(300 * rng.dirichlet([0.2] * 96, 2).T @ rng.random((2, 12))).astype(float)
    rows = Axis(96, "mutation type", labels=labels)
    return Data(V, rows, Axis(12, "tumour"), "mutations", "made up")
