"""Data beyond memory: row blocks, read one after another from a file or a store.

A reading costs seconds or minutes. So every pass is counted, forms as many products as it can, and
its last products are kept: who asks for them again gets them without another pass.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.base import Normal, inner
from factormer.data.dense import Dense, product
from factormer.data.factors import Factors
from factormer.data.lowrank import LowRank, whitening
from factormer.data.memory import as_bytes
from factormer.data.sources import Source

_SHARE = 8  # the part of the memory limit that a block takes; there are up to three of them
_BLOCK = 2**27  # bytes of a block from which larger ones are no faster
_KEPT = 2  # passes whose products are kept: the last, and the best before it
# Share of the squared norm of a block below which its error is computed from its entries.
_RESOLVED = {torch.float32: 1e-2, torch.float64: 1e-6}

Update = Callable[[slice, Float[Tensor, "k r"]], Float[Tensor, "k r"]]


class Seen(NamedTuple):
    """A point of which a pass formed all products: (W, H), VH, VᵀW, and ‖W Hᵀ − V‖²."""

    x: Factors
    VH: Float[Tensor, "m r"]
    VtW: Float[Tensor, "n r"]
    sq_error: Float[Tensor, ""]


@dataclass(eq=False)
class Record:
    """What is known of a source: how often it was read, its sums, a sketch, the last products."""

    passes: int = 0
    n_bytes: float = 0.0
    total: float | None = None
    sq_norms: dict[int, float] = field(default_factory=dict)  # of blocks, by their first row
    sketch: LowRank | None = None
    seen: deque[tuple[Any, Seen]] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(frozen=True, eq=False)
class Blocks:
    """`scale` times a matrix outside of memory, of which some rows at a time are in memory.

    The next block is read by a thread while the last one is worked on. The first pass checks the
    entries and finds their sums. `room` is how many bytes are left for factors and sketches.
    """

    source: Source
    ends: tuple[int, ...]
    room: float
    scale: float = 1.0
    precision: torch.dtype | None = None
    record: Record = field(default_factory=Record)

    rows = None
    cols = None
    device = torch.device("cpu")

    @staticmethod
    def of(source: Source, memory_limit: Any = None) -> Blocks:
        """Blocks that keep within a limit, in bytes or as text ("4GB")."""
        limit = as_bytes(memory_limit)
        (m, _), row = source.shape, max(source.nbytes / source.shape[0], 1.0)
        most = max(int(min(limit / _SHARE, _BLOCK) / row), 1)
        size = max(most // source.step, 1) * source.step
        ends = source.ends or (*range(0, m, size), m)
        if source.ends is not None:
            ends = _merged(source.ends, most)
        largest = max(b - a for a, b in pairwise(ends)) * row
        if largest > limit / 3:
            raise ValueError(
                f"memory_limit is {limit:.3g} bytes, and {largest:.3g} of V, a {source.kind}, are "
                "stored together, of which three must fit: raise memory_limit, or store V in "
                "smaller chunks or row groups"
            )
        return Blocks(source, tuple(ends), limit - 3 * largest)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> torch.dtype:
        single = torch.float32 if self.source.itemsize == 4 else torch.float64
        return self.precision or single

    @property
    def T(self) -> Turned:
        return Turned(self)

    def work(self) -> float:
        """The number of multiplications in a product with one column: the stored entries."""
        return float(self.source.entries)

    def sq_norm(self) -> Float[Tensor, ""]:
        """‖V‖² in float64."""
        self._survey()
        return torch.tensor(self.scale**2 * sum(self.record.sq_norms.values()), dtype=torch.float64)

    def total(self) -> Float[Tensor, ""]:
        """The sum of all entries."""
        self._survey()
        return torch.tensor(self.scale * (self.record.total or 0.0), dtype=torch.float64)

    def scaled(self, c: Float[Tensor, ""]) -> Blocks:
        """The matrix c·V."""
        return replace(self, scale=self.scale * float(c))

    def to(self, dtype: torch.dtype) -> Blocks:
        """The matrix in another precision."""
        return replace(self, precision=dtype)

    # Passes

    def read(self) -> Iterator[tuple[slice, Any]]:
        """One pass: the rows of each block, and the block without the scale, dense or CSR."""
        record, first = self.record, self.record.total is None
        total, cuts = 0.0, list(pairwise(self.ends))
        record.passes += 1
        with ThreadPoolExecutor(1, "factormer-read") as reader:
            coming = reader.submit(self._load, *cuts[0])
            for number, (a, b) in enumerate(cuts):
                block = coming.result()
                if number + 1 < len(cuts):
                    coming = reader.submit(self._load, *cuts[number + 1])
                if first:
                    name = f"block {number + 1} of {len(cuts)} of V (rows {a} to {b - 1})"
                    more, record.sq_norms[a] = _checked(block, name)
                    total += more
                yield slice(a, b), block
        if first:
            record.total = total

    def _load(self, a: int, b: int) -> Any:
        try:
            rows = self.source.read(a, b)
        except Exception as error:  # stores raise anything
            raise OSError(
                f"rows {a} to {b - 1} of V, a {self.source.kind}, could not be read "
                f"({error or type(error).__name__}); check that its file is there, open and whole"
            ) from error
        sparse = scipy.sparse.issparse(rows)
        self.record.n_bytes += rows.data.nbytes + rows.indices.nbytes if sparse else rows.nbytes
        dtype = np.float32 if self.dtype == torch.float32 else np.float64
        if sparse:
            return rows.astype(dtype, copy=False)
        return torch.from_numpy(np.array(rows, dtype, order="C", copy=True))

    def _survey(self) -> None:
        """A pass for the sums alone, if there was none before."""
        if self.record.total is None:
            for _ in self.read():
                pass

    def __matmul__(self, X: Float[Tensor, "n k"]) -> Float[Tensor, "m k"]:
        for view, seen in self.record.seen:
            if seen.x.H is X and view == self._view:
                return seen.VH
        out = X.new_empty(self.shape[0], X.shape[1])
        for rows, block in self.read():
            out[rows] = times(block, X)
        return out.mul_(self.scale)

    def turned(self, Y: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
        """VᵀY."""
        for view, seen in self.record.seen:
            if seen.x.W is Y and view == self._view:
                return seen.VtW
        out = Y.new_zeros(self.shape[1], Y.shape[1])
        for rows, block in self.read():
            out += turned_times(block, Y[rows])
        return out.mul_(self.scale)

    def normal(self, W: Float[Tensor, "m r"]) -> Normal:
        """Return (VᵀW, WᵀW)."""
        return Normal(self.turned(W), W.mT @ W)

    def both(self, X: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "m k"], Float[Tensor, "n k"]]:
        """VX and VᵀVX, in one pass: a block of VX needs only the same block of V."""
        Y, Z = X.new_empty(self.shape[0], X.shape[1]), torch.zeros_like(X)
        for rows, block in self.read():
            Y[rows] = times(block, X)
            Z += turned_times(block, Y[rows])
        return Y.mul_(self.scale), Z.mul_(self.scale**2)

    def updated(self, H: Float[Tensor, "n r"], update: Update) -> Seen:
        """All products at (W, H), in one pass; W[rows] = update(rows, (VH)[rows])."""
        c, HtH = self.scale, H.mT @ H
        VH, W = H.new_empty(self.shape[0], H.shape[1]), H.new_empty(self.shape[0], H.shape[1])
        VtW, error = torch.zeros_like(H), 0.0
        for rows, block in self.read():
            torch.mul(times(block, H), c, out=VH[rows])
            W[rows] = update(rows, VH[rows])
            VtW += turned_times(block, W[rows])
            norm = c * c * self.record.sq_norms[rows.start]
            error += _sq_error(block, c, norm, W[rows], H, HtH, VH[rows])
        x = Factors(W, H)
        seen = Seen(x, VH, VtW.mul_(c), torch.tensor(error, dtype=torch.float64))
        self.record.seen.append((self._view, seen))
        return seen

    @property
    def _view(self) -> tuple[float, torch.dtype]:
        return self.scale, self.dtype

    def knows(self, x: Factors) -> bool:
        """Whether a pass has formed all products at x, so that its error and gradient are known."""
        return self._seen(x) is not None

    def _seen(self, x: Factors) -> Seen | None:
        same = (s for view, s in self.record.seen if s.x.W is x.W and view == self._view)
        return next((seen for seen in same if seen.x.H is x.H), None)

    def sq_error(self, x: Factors) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖², in float64."""
        if (seen := self._seen(x)) is not None:
            return seen.sq_error
        error, HtH = 0.0, x.H.mT @ x.H
        for rows, block in self.read():
            VH = self.scale * times(block, x.H)
            norm = self.scale**2 * self.record.sq_norms[rows.start]
            error += _sq_error(block, self.scale, norm, x.W[rows], x.H, HtH, VH)
        return torch.tensor(error, dtype=torch.float64)

    def sketch(self, p: int, rng: torch.Generator) -> LowRank:
        """V ≈ Q (VᵀQ)ᵀ with orthonormal Q (m, p), in two passes, or none if it is known already.

        The range finder of `lowrank.sketch` with one power iteration: the first pass forms VᵀVΩ of
        random Ω, the second VP and VᵀVP of its orthonormal basis P, and Q spans VP.
        """
        p, plain = min(p, *self.shape), replace(self, scale=1.0)
        if self.record.sketch is None or self.record.sketch.U.shape[1] < p:
            _, Z = plain.both(torch.randn(self.shape[1], p, generator=rng).to(self.dtype))
            size = Z.norm(dim=0).clamp(min=torch.finfo(Z.dtype).tiny)
            P = torch.linalg.qr((Z / size).double()).Q.to(self.dtype)
            U, Z = plain.both(P)
            by_U = whitening(U)
            Z = Z @ by_U
            lost = plain.sq_norm() - inner(Z, Z)
            self.record.sketch = LowRank(U @ by_U, Z, lost.clamp(min=0))
        return self.known_sketch  # pyright: ignore[reportReturnType]

    @property
    def known_sketch(self) -> LowRank | None:
        """The sketch that earlier passes made; None if there is none."""
        kept = self.record.sketch
        return kept and kept.scaled(torch.tensor(self.scale, dtype=self.dtype)).to(self.dtype)

    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "k n"]]]:
        """Yield the rows in dense blocks of at most `size` (None: those in which they are read)."""
        for rows, block in self.read():
            step = size or (rows.stop - rows.start)
            for a in range(rows.start, rows.stop, step):
                some = block[a - rows.start : min(a + step, rows.stop) - rows.start]
                some = torch.from_numpy(some.toarray()) if scipy.sparse.issparse(some) else some
                yield slice(a, a + len(some)), self.scale * some


@dataclass(frozen=True, eq=False)
class Turned:
    """The transpose of `Blocks`, which is read in the same order."""

    V: Blocks

    rows = None
    cols = None
    device = torch.device("cpu")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.V.shape[::-1]

    @property
    def dtype(self) -> torch.dtype:
        return self.V.dtype

    @property
    def T(self) -> Blocks:
        return self.V

    def __matmul__(self, X: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
        return self.V.turned(X)

    def normal(self, W: Float[Tensor, "n r"]) -> Normal:
        """Return (VH, HᵀH) of the matrix that this is the transpose of."""
        return Normal(self.V @ W, W.mT @ W)

    def sq_error(self, x: Factors) -> Float[Tensor, ""]:
        return self.V.sq_error(x.swap())

    def sq_norm(self) -> Float[Tensor, ""]:
        return self.V.sq_norm()

    def total(self) -> Float[Tensor, ""]:
        return self.V.total()

    def work(self) -> float:
        return self.V.work()

    def scaled(self, c: Float[Tensor, ""]) -> Turned:
        return Turned(self.V.scaled(c))

    def to(self, dtype: torch.dtype) -> Turned:
        return Turned(self.V.to(dtype))

    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "k m"]]]:
        """Refuse: a block of columns takes a pass of its own."""
        raise ValueError(
            "V is read in blocks of rows, and this needs its columns one after another: use the "
            "squared error, or load V into memory"
        )


def times(block: Any, X: Float[Tensor, "n k"]) -> Float[Tensor, "b k"]:
    """The product of a block, a tensor or CSR, with X."""
    if scipy.sparse.issparse(block):
        return torch.from_numpy(block @ X.numpy())
    return product(block, X)


def turned_times(block: Any, Y: Float[Tensor, "b k"]) -> Float[Tensor, "n k"]:
    """The product of the transpose of a block with Y."""
    if scipy.sparse.issparse(block):
        return torch.from_numpy(block.T @ Y.numpy())
    return product(block.mT, Y)


def _sq_error(
    block: Any, c: float, norm: float, W: Tensor, H: Tensor, HtH: Tensor, VH: Tensor
) -> float:
    """‖W Hᵀ − c·block‖² from VH and ‖c·block‖², or where that leaves few digits, from entries."""
    error = norm - 2 * float(inner(VH, W)) + float(inner(W.mT @ W, HtH))
    if error >= _RESOLVED[W.dtype] * norm:
        return error
    if not scipy.sparse.issparse(block):
        residual = torch.addmm(block, W, H.mT, beta=-c).view(-1)
        return float(residual.dot(residual))
    W, H = W.double(), H.double()
    fit = float(inner(W.mT @ W, H.mT @ H))
    return max(norm + fit - 2 * c * float(inner(times(block.astype(np.float64), H), W)), 0.0)


def _checked(block: Any, name: str) -> tuple[float, float]:
    """The sum and the sum of squares of a block, which must be finite and not negative."""
    values = torch.from_numpy(block.data) if scipy.sparse.issparse(block) else block
    if not values.numel():
        return 0.0, 0.0
    low, high = (float(bound) for bound in values.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = int((~values.isfinite()).sum())
        raise ValueError(
            f"{name} has {bad} entries that are NaN or infinite; all must be finite: remove or "
            "impute them first"
        )
    if low < 0:
        bad = int((values < 0).sum())
        raise ValueError(
            f"Negative values in data passed to NMF: {name} has {bad} entries below zero (the "
            f"least is {low:g}) and it needs entries of at least 0: shift or clip them first"
        )
    flat = Dense(values if values.dim() == 2 else values[None])
    return float(flat.total()), float(flat.sq_norm())


def _merged(ends: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Neighbouring pieces put together while they have at most so many rows."""
    kept = [ends[0]]
    for here, after in pairwise((*ends[1:], ends[-1] + most + 1)):
        if after - kept[-1] > most:
            kept.append(here)
    return tuple(kept)
