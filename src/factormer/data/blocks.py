"""Data beyond memory: row blocks, read one after another from a file or a store.

A reading costs seconds or minutes. So every pass is counted, forms as many products as it can, and
the products at a point are kept with it: who asks for them again gets them without another pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import parts, readings
from factormer.data.base import Normal, inner
from factormer.data.factors import Factors
from factormer.data.known import Known
from factormer.data.lowrank import LowRank, whitening


@runtime_checkable
class Reader(Protocol):
    """A reader of the blocks: it makes a pass over them, and says what they are.

    `room` is how many bytes are left for factors and sketches. `is_at_hand` says that the blocks
    are in memory, so that a pass costs no more than its arithmetic; `device`, where that is made.
    """

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def entries(self) -> float: ...
    @property
    def kind(self) -> str: ...
    @property
    def is_sparse(self) -> bool: ...
    @property
    def room(self) -> float: ...
    @property
    def is_at_hand(self) -> bool: ...
    @property
    def device(self) -> torch.device: ...
    def sweep(
        self, part: parts.Part, rows: tuple[Tensor, ...], dtype: torch.dtype, *, survey: bool
    ) -> tuple[list[Tensor], list[Tensor]]: ...
    def read(self, dtype: torch.dtype) -> Iterator[tuple[slice, Any]]: ...


@runtime_checkable
class Kept(Protocol):
    """A keeper of passes: see `data/journal.py`."""

    def told(self) -> AbstractContextManager[None]: ...
    def key(self, *asked: Any) -> str: ...
    def found(self, key: str) -> tuple[list[Tensor], list[Tensor]] | None: ...
    def keep(self, key: str, joined: list[Tensor], summed: list[Tensor]) -> None: ...


class Seen(NamedTuple):
    """A point of which a pass formed all products: (W, H), VH, VᵀW, and ‖W Hᵀ − V‖²."""

    x: Factors
    VH: Float[Tensor, "m r"]
    VtW: Float[Tensor, "n r"]
    sq_error: Float[Tensor, ""]
    sums: Any = None  # over rows, where these stay elsewhere (`data/spread.py`)

    @property
    def WtW(self) -> Float[Tensor, "r r"]:
        """The Gram matrix of W."""
        return self.x.W.mT @ self.x.W if self.sums is None else self.sums.WtW


@dataclass(eq=False)
class Record:
    """All that is known of V: readings so far, sums by rows, a sketch, products at points.

    A journal keeps passes for a later run; those that it has count, and are not made again.
    """

    passes: int = 0
    sums: Float[Tensor, "m 2"] | None = None  # of the entries of each row, and of their squares
    sketch: LowRank | None = None
    seen: Known = field(default_factory=Known)
    fits: Known = field(default_factory=Known)
    journal: Kept | None = None


@dataclass(frozen=True, eq=False)
class Blocks:
    """`scale` times a matrix outside of memory, of which some rows at a time are in memory.

    The first pass, whatever it is for, checks the entries and finds their sums.
    """

    reader: Reader
    scale: float = 1.0
    precision: torch.dtype | None = None
    record: Record = field(default_factory=Record)

    rows = cols = None

    @property
    def device(self) -> torch.device:
        """Return the device of its products, and so of the factors."""
        return self.reader.device

    @property
    def shape(self) -> tuple[int, ...]:
        return self.reader.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.precision or (torch.float32 if self.reader.itemsize == 4 else torch.float64)

    @property
    def T(self) -> Turned:
        return Turned(self)

    def work(self) -> float:
        """The number of multiplications in a product with one column: the stored entries."""
        return float(self.reader.entries)

    def sq_norm(self) -> Float[Tensor, ""]:
        """‖V‖² in float64."""
        return self.scale**2 * self._sums()[:, 1].sum()

    def total(self) -> Float[Tensor, ""]:
        """The sum of all entries."""
        return self.scale * self._sums()[:, 0].sum()

    def scaled(self, c: Float[Tensor, ""]) -> Blocks:
        """The matrix c·V."""
        return replace(self, scale=self.scale * float(c))

    def to(self, dtype: torch.dtype) -> Blocks:
        """The matrix in another precision."""
        return replace(self, precision=dtype)

    # Passes

    def sweep(self, part: parts.Part, *rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """One pass: the tensors by rows that the part returns, joined, and the others, summed."""
        record, first = self.record, self.record.sums is None
        record.passes += 1
        readings.add()
        joined, summed = self._swept(part, rows, first)
        if first:
            record.sums = joined.pop()
        return joined, summed

    def _swept(
        self, part: parts.Part, rows: tuple[Tensor, ...], first: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return what a pass finds, or has found in an earlier run."""
        journal, dtype = self.record.journal, self.dtype
        if journal is None:
            return self.reader.sweep(part, rows, dtype, survey=first)
        key = journal.key(part, rows, dtype, first)
        found = journal.found(key)
        if found is None:
            with journal.told():
                found = self.reader.sweep(part, rows, dtype, survey=first)
            journal.keep(key, *found)
        joined, summed = found
        return [F.to(self.device) for F in joined], [F.to(self.device) for F in summed]

    def _sums(self) -> Float[Tensor, "m 2"]:
        """Return the sums of rows, which take a pass if there was none before."""
        if self.record.sums is None:
            self.sweep(parts.Nothing())
        assert self.record.sums is not None
        return self.record.sums

    def _known_sums(self) -> Float[Tensor, "m 2"]:
        """Return the sums of rows; before the first pass, which finds them, they mean nothing."""
        m = self.shape[0]
        if self.record.sums is None:
            return torch.zeros(m, 2, device=self.device)
        return self.record.sums

    def __matmul__(self, X: Float[Tensor, "n k"]) -> Float[Tensor, "m k"]:
        if (seen := self.record.seen.at(self._view, H=X)) is not None:
            return seen.VH
        (Y,), _ = self.sweep(parts.Times(self.scale * X))
        return Y

    def turned(self, Y: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
        """VᵀY."""
        if (seen := self.record.seen.at(self._view, W=Y)) is not None:
            return seen.VtW
        _, (Z,) = self.sweep(parts.TurnedTimes(), Y)
        return Z.mul_(self.scale)

    def normal(self, W: Float[Tensor, "m r"]) -> Normal:
        """Return (VᵀW, WᵀW)."""
        return Normal(self.turned(W), W.mT @ W)

    def both(self, X: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "m k"], Float[Tensor, "n k"]]:
        """VX and VᵀVX, in one pass."""
        (Y,), (Z,) = self.sweep(parts.Both(X))
        return Y.mul_(self.scale), Z.mul_(self.scale**2)

    def updated(self, x: Factors, update: parts.Update) -> Seen:
        """All products at (W, H), in one pass; rows of W are update(rows of VH, rows of x.W)."""
        part = parts.Updated(x.H, update, self.scale)
        (VH, W), (VtW, error) = self.sweep(part, self._known_sums(), x.W)
        seen = Seen(Factors(W, x.H), VH, VtW, error)
        self.record.seen.keep(self._view, seen)
        return seen

    @property
    def _view(self) -> tuple[float, torch.dtype]:
        return self.scale, self.dtype

    def knows(self, x: Factors) -> bool:
        """Whether a pass has formed all products at x, so that its error and gradient are known."""
        return self.record.seen.at(self._view, *x) is not None or self.fit_at(x) is not None

    def fit_at(self, x: Factors) -> Any:
        """Return what a pass found of another loss at x (`problem.passes.Fit`), or None."""
        found = self.record.fits.at(self._view, *x)
        return None if found is None else found._replace(x=x)

    def keep_fit(self, fit: Any) -> None:
        """Keep that as long as the point is kept."""
        self.record.fits.keep(self._view, fit)

    def sq_error(self, x: Factors) -> Float[Tensor, ""]:
        """‖W Hᵀ − V‖², in float64."""
        if (seen := self.record.seen.at(self._view, *x)) is not None:
            return seen.sq_error
        part = parts.Misfit(x.H, self.scale)
        _, (error,) = self.sweep(part, self._known_sums(), x.W)
        return error

    def sketch(self, p: int, rng: torch.Generator) -> LowRank:
        """V ≈ Q (VᵀQ)ᵀ with orthonormal Q (m, p), in two passes, or none if it is known already.

        The range finder of `lowrank.sketch` with one power iteration: the first pass finds P
        (`range`), the second forms VP and VᵀVP, and Q spans VP.
        """
        p, plain = min(p, *self.shape), replace(self, scale=1.0)
        if self.record.sketch is None or self.record.sketch.U.shape[1] < p:
            U, Z = plain.both(plain.range(p, rng))
            for _ in range(2):  # the second time makes U orthonormal to all digits
                by_U = whitening(U)
                U, Z = U @ by_U, Z @ by_U
            lost = plain.sq_norm() - inner(Z, Z)
            self.record.sketch = LowRank(U, Z, lost.clamp(min=0))
        return self.known_sketch  # pyright: ignore[reportReturnType]

    def range(self, p: int, rng: torch.Generator) -> Float[Tensor, "n p"]:
        """An orthonormal basis of VᵀV times random columns, in one pass."""
        random = torch.randn(self.shape[1], p, generator=rng).to(self.device, self.dtype)
        _, (Z,) = self.sweep(parts.Gram(random))
        size = Z.norm(dim=0).clamp(min=torch.finfo(Z.dtype).tiny)
        return torch.linalg.qr((Z / size).double()).Q.to(self.dtype)

    @property
    def known_sketch(self) -> LowRank | None:
        """The sketch that earlier passes made; None if there is none."""
        kept = self.record.sketch
        scale = torch.tensor(self.scale, dtype=self.dtype, device=self.device)
        return kept and kept.scaled(scale).to(self.dtype)

    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "k n"]]]:
        """Yield the rows in dense blocks of at most `size` (None: those in which they are read)."""
        self._sums()  # which checks them
        self.record.passes += 1
        readings.add()
        for rows, block in self.reader.read(self.dtype):
            step = size or (rows.stop - rows.start)
            for a in range(rows.start, rows.stop, step):
                some = block[a - rows.start : min(a + step, rows.stop) - rows.start]
                some = torch.from_numpy(some.toarray()) if scipy.sparse.issparse(some) else some
                yield slice(a, a + len(some)), self.scale * some.to(self.device)


@dataclass(frozen=True, eq=False)
class Turned:
    """The transpose of `Blocks`, which is read in the same order."""

    V: Blocks

    rows = None
    cols = None

    @property
    def device(self) -> torch.device:
        return self.V.device

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
        """Return (VH, HᵀH), H being the left factor of the transpose."""
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
