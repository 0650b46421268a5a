"""Calls of the core as tests make them, and matrices to call it with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tests.core.built import load

core = load()


@contextmanager
def under(isa: str) -> Iterator[None]:
    """Run lanes under an instruction set, and under the one that was in use from then on."""
    before = core.isa()
    core.use_isa(isa)
    try:
        yield
    finally:
        core.use_isa(before)


class Found(NamedTuple):
    """The result of one lane."""

    W: np.ndarray
    H: np.ndarray
    error: float
    iterations: int
    status: str
    errors: np.ndarray

    def bits(self) -> tuple[bytes, bytes, float, int, str, bytes]:
        """All that a lane returns, to be compared bit by bit."""
        whole = self.W.tobytes(), self.H.tobytes()
        return (*whole, self.error, self.iterations, self.status, self.errors.tobytes())


def given(V: Any) -> Any:
    """A matrix as the core takes it."""
    if sp.issparse(V):
        halves = (V.tocsr(), V.tocsc())
        parts = ((A.indptr.astype(np.int64), A.indices, A.data.astype(float)) for A in halves)
        return ("sparse", *V.shape, *(part for half in parts for part in half))
    return V


def run(matrices: list[Any], index: list[int], ranks: list[int], seeds: Any, **rules: Any) -> list:
    """Run lanes."""
    W, H, history, ends = core.run([given(V) for V in matrices], index, ranks, list(seeds), **rules)
    shapes = [shape(V) for V in matrices]
    found, w, h, t = [], 0, 0, 0
    for k, r, (error, iterations, status, rows) in zip(index, ranks, ends, strict=True):
        m, n = shapes[k]
        of_W, of_H = (F[a : a + size * r] for F, a, size in ((W, w, m), (H, h, n)))
        kept = history[t : t + rows, 0]
        one = (of_W.reshape(m, r), of_H.reshape(n, r), error, iterations, core.STATUSES[status])
        found.append(Found(*one, kept))
        w, h, t = w + m * r, h + n * r, t + rows
    return found


def shape(V: Any) -> tuple[int, int]:
    """The rows and columns of a matrix of any kind."""
    if not isinstance(V, tuple):
        return V.shape
    if V[0] == "sparse":
        return V[1], V[2]
    return V[1].shape if V[0] == "weighted" else (len(V[1]), len(V[2]))


def one(V: Any, rank: int, seed: int = 0, *, start: Any = None, fixed: Any = None, **rules: Any):
    """Run one lane."""
    begin = None if start is None else [start]
    return run([V], [0], [rank], [seed], starts=begin, fixed=fixed and [fixed], **rules)[0]


def planted(m: int, n: int, r: int, *, noise: float = 0.1, seed: int = 0) -> np.ndarray:
    """W Hᵀ of sparse nonnegative factors, and uniform noise."""
    rng = np.random.default_rng(seed)
    W, H = (rng.random((k, r)) * (rng.random((k, r)) < 0.5) for k in (m, n))
    return W @ H.T + noise * rng.random((m, n))


def kinds(m: int = 70, n: int = 45, r: int = 5) -> dict[str, Any]:
    """One matrix of every kind that the core takes."""
    V = planted(m, n, r)
    thin = np.where(np.median(V) < V, V, 0)
    rng = np.random.default_rng(1)
    return {
        "by rows": V,
        "by columns": np.asfortranarray(V),
        "part of a larger one": np.pad(V, 3)[3:-3, 3:-3],
        "float32": V.astype(np.float32),
        "float32 by columns": np.asfortranarray(V.astype(np.float32)),
        "sparse": sp.csr_matrix(thin),
        "low rank": ("low-rank", rng.random((m, r + 2)), rng.random((n, r + 2))),
    }


def as_array(V: Any) -> np.ndarray:
    """A matrix of any kind as a dense array."""
    if sp.issparse(V):
        return V.toarray()
    return V[1] @ V[2].T if isinstance(V, tuple) else np.asarray(V, float)


def rmse(V: Any, found: Found) -> float:
    """The error, formed entry by entry."""
    return float(np.sqrt(np.mean((as_array(V) - found.W @ found.H.T) ** 2)))
