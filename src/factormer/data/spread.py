"""Blocks on workers where all that is by rows stays there: W, VH and the sketch.

What the caller has of them are Gram matrices and a sample of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import parts, readings
from factormer.data.base import Normal, inner
from factormer.data.blocks import Blocks, Seen
from factormer.data.factors import Factors
from factormer.data.held import Held
from factormer.data.lowrank import LowRank, whitening, whitening_by
from factormer.data.workers import Workers

_LEAST, _EACH = 4096, 256  # rows of a sample, at least, and for each component
_RANK = 1e-8  # least eigenvalue of a Gram matrix of unit columns, in float64, that counts
_CHANGE = 1e-4  # of a column between passes, relative to it, from which products have digits


class Sums(NamedTuple):
    """Sums that a pass found over all rows, beside products.

    The Gram matrix of the sketch, W, VH and, if there was a pass `before`, its W and VH; of W; and
    the square of the norm of the projected gradient by W.
    """

    gram: Float[Tensor, "q q"]
    WtW: Float[Tensor, "r r"]
    slope: Float[Tensor, ""]
    before: Seen | None


@dataclass(eq=False)
class Basis:
    """The sketch of V: U = VP on the workers, Z = VᵀU, UᵀU, and C that makes U C orthonormal."""

    U: Held
    Z: Float[Tensor, "n p"]
    gram: Float[Tensor, "p p"]
    C: Float[Tensor, "p q"]


@dataclass(eq=False)
class Memory:
    """The sums of all entries and of their squares, the sketch, and the last pass in its view."""

    totals: Float[Tensor, " 2"] | None = None
    basis: Basis | None = None
    last: tuple[Any, Seen] | None = None


@dataclass(frozen=True, eq=False)
class Spread(Blocks):
    """Blocks on workers. Factors W of V are `Held`, and `sketch` is of the sample, weighted."""

    workers: Workers | None = None
    memory: Memory = field(default_factory=Memory)

    @property
    def weight(self) -> float:
        """How many rows of V stand behind one of the sample."""
        return self.shape[0] / len(self._workers.sample)

    @property
    def _workers(self) -> Workers:
        assert self.workers is not None
        return self.workers

    def sweep(self, part: parts.Part, *rows: Tensor) -> tuple[list[Any], list[Tensor]]:
        """One pass: what the part finds by rows, which stays there, and what is summed."""
        record, first = self.record, self.record.sums is None
        record.passes += 1
        readings.add()
        held, summed = self._workers.hold(part, rows, self.dtype, survey=first)
        if first:
            record.sums = held.pop()
            _, (self.memory.totals,) = self.by_rows(Totals(), record.sums)
        return held, summed

    def by_rows(self, part: parts.Part, *rows: Tensor) -> tuple[list[Held], list[Tensor]]:
        """Return what a part finds in rows that lie on the workers; V is not read."""
        return self._workers.hold(part, rows, self.dtype, reads=False)

    def lifted(self, W: Float[Tensor, "m r"], share: float) -> Held:
        """W with entries of at least that share of the mean of their column."""
        _, (total,) = self.by_rows(Totals(), W)
        (W,), _ = self.by_rows(AtLeast((share / len(W) * total).to(W.dtype)), W)
        return W

    def gathered(self, x: Factors) -> Factors:
        """The point, here."""
        return Factors(self._workers.gather(x.W), x.H) if isinstance(x.W, Held) else x

    def _totals(self) -> Float[Tensor, " 2"]:
        if self.memory.totals is None:
            self.sweep(parts.Nothing())
        assert self.memory.totals is not None
        return self.memory.totals

    def sq_norm(self) -> Float[Tensor, ""]:
        return self.scale**2 * self._totals()[1]

    def total(self) -> Float[Tensor, ""]:
        return self.scale * self._totals()[0]

    def updated(self, x: Factors, update: parts.Update) -> Seen:
        """All products at (W, H), in one pass, and `Sums`."""
        basis, (p, r) = self._basis, (len(self._basis.gram), x.H.shape[1])
        view, before = self.memory.last or (None, None)
        before = before if view == self._view else None
        others = [basis.U] if before is None else [basis.U, before.x.W, before.VH]
        part = Remembered(parts.Updated(x.H, update, self.scale))
        (VH, W), (VtW, error, cross, slope) = self.sweep(part, self._known_sums(), x.W, *others)
        if before is not None:  # no more than one, or their rows would pile up on the workers
            before = before._replace(sums=before.sums._replace(before=None))
        WtW = cross[:r, p : p + r].to(self.dtype)
        sums = Sums(_gram(cross, basis.gram, before), WtW, slope, before)
        seen = Seen(Factors(W, x.H), VH, VtW, error, sums)
        self.record.seen.keep(self._view, seen._replace(sums=sums._replace(before=None)))
        self.memory.last = self._view, seen
        return seen

    def normal(self, W: Float[Tensor, "m r"]) -> Normal:
        """(VᵀW, WᵀW), of a W that a pass has made."""
        seen = self.record.seen.at(self._view, W=W)
        return Normal(seen.VtW, seen.sums.WtW)

    def slope(self, x: Factors) -> Float[Tensor, ""]:
        """The square of the norm of the projected gradient by W, after a pass at x."""
        return self.record.seen.at(self._view, *x).sums.slope

    def view(self, seen: Seen) -> tuple[LowRank, Factors]:
        """Rows of V̂ (see `enriched`) and of W that are in the sample, weighted.

        V̂ has the products of V with the sketch, W, H and their last changes. That takes Gram
        matrices alone: all bases are linear combinations of what lies on the workers.
        """
        basis, ((W, H), VH, VtW, _, sums) = self._basis, seen
        p, r = len(basis.gram), H.shape[1]
        eye = torch.eye(len(sums.gram), dtype=torch.float64)
        U, of_W, of_VH, *old = eye.split([p, *[r] * ((len(eye) - p) // r)], 1)
        left, VtQ = [U @ basis.C.double(), of_W], [self.scale * basis.Z @ basis.C, VtW]
        right, P, rows = [of_VH], [H], [basis.U.few, W.few, VH.few]  # pyright: ignore
        if old:
            before = sums.before
            change, moved = of_W - old[0], H - before.x.H
            large = _norms(sums.gram, change) > _CHANGE * _norms(sums.gram, of_W)
            left, VtQ = [*left, change[:, large]], [*VtQ, (VtW - before.VtW)[:, large]]
            large = moved.norm(dim=0) > _CHANGE * H.norm(dim=0)
            right, P = [*right, (of_VH - old[1])[:, large]], [*P, moved[:, large]]
            rows += [before.x.W.few, before.VH.few]
        Q, VtQ, P = torch.cat(left, 1), torch.cat(VtQ, 1), torch.cat(P, 1)
        size = _norms(sums.gram, Q).clamp(min=torch.finfo(H.dtype).tiny)
        by_Q, by_H = whitening_by(Q.mT @ sums.gram @ Q, size, _RANK), whitening(P)
        Q, VtQ, P = Q @ by_Q, VtQ @ by_Q.to(H.dtype), P @ by_H
        VP = torch.cat(right, 1) @ by_H.double() - Q @ (VtQ.mT @ P).double()
        sample = torch.cat(rows, 1).double() @ torch.cat([Q, VP], 1)
        root = self.weight**0.5
        U, Z = (root * sample).to(H.dtype), torch.cat([VtQ, P], 1)
        return LowRank(U, Z, self.lost(U, Z)), Factors(root * W.few, H)  # pyright: ignore

    # The sketch, and points of it

    @property
    def _basis(self) -> Basis:
        assert self.memory.basis is not None, "a sketch is made before passes are"
        return self.memory.basis

    def sketch(self, p: int, rng: torch.Generator) -> LowRank:
        """The sample of the sketch that `Blocks` would make, its rows weighted by √(m/s)."""
        p, plain = min(p, *self.shape), replace(self, scale=1.0)
        self.memory.last = None  # a run begins with its sketch, and the last pass was of another
        if self.record.sketch is None or self.record.sketch.U.shape[1] < p:
            (U,), (Z, gram) = plain.sweep(BothAndGram(plain.range(p, rng)))
            size = gram.diagonal().sqrt().clamp(min=torch.finfo(U.dtype).tiny)
            C = whitening_by(gram, size, _RANK).to(U.dtype)
            self.memory.basis = Basis(U, Z, gram, C)
            Q, Z = self.weight**0.5 * U.few @ C, Z @ C
            self.record.sketch = LowRank(Q, Z, plain.lost(Q, Z))
        sketch = self.known_sketch
        assert sketch is not None
        return sketch

    def lost(self, U: Float[Tensor, "s q"], Z: Float[Tensor, "n q"]) -> Float[Tensor, ""]:
        """‖V‖² less ‖U Zᵀ‖², as far as the sample knows them."""
        assert isinstance(self.record.sums, Held)
        norm = self.scale**2 * self.weight * self.record.sums.few[:, 1].sum()
        return (norm - inner(U.mT @ U, Z.mT @ Z)).clamp(min=0)

    def from_sketch(self, H: Float[Tensor, "n r"], update: parts.Update) -> Held:
        """W for H, from zeros, where the sketch stands for V; V is not read."""
        basis = self._basis
        ZtH = self.scale * basis.C @ ((basis.Z @ basis.C).mT @ H)
        (W,), _ = self.by_rows(FromSketch(ZtH, update), basis.U)
        return W


def spread(V: Blocks, rank: int) -> Blocks:
    """V with rows that stay on the workers, if it is there and has more than a sample would."""
    workers, count = getattr(V.reader, "workers", None), max(_LEAST, _EACH * rank)
    if not isinstance(workers, Workers) or V.record.journal is not None or count >= V.shape[0]:
        return V
    return Spread(V.reader, V.scale, V.precision, workers=workers.sampled(count))


def _gram(
    cross: Float[Tensor, "k q"], of_sketch: Float[Tensor, "p p"], before: Seen | None
) -> Float[Tensor, "q q"]:
    """The Gram matrix of `Sums`, of which `cross` are the rows for W and VH."""
    (k, q), p = cross.shape, len(of_sketch)
    old = of_sketch if before is None else before.sums.gram[: p + k, : p + k]
    others = torch.tensor([*range(p), *range(p + k, q)])
    gram = cross.new_empty(q, q)
    gram[others[:, None], others] = old
    gram[p : p + k], gram[:, p : p + k] = cross, cross.mT
    return gram


def _norms(gram: Float[Tensor, "q q"], columns: Float[Tensor, "q k"]) -> Float[Tensor, " k"]:
    """The norms of linear combinations of what the Gram matrix is of."""
    return (columns * (gram @ columns)).sum(dim=0).clamp(min=0).sqrt()


@dataclass(frozen=True, eq=False)
class Totals:
    """The sums of columns."""

    makes: ClassVar = (0, 1)

    def __call__(self, F: Tensor) -> parts.Parts:
        return (), (F.double().sum(dim=0),)


@dataclass(frozen=True, eq=False)
class AtLeast:
    """Entries of at least given numbers, one for each column."""

    least: Float[Tensor, " k"]

    makes: ClassVar = (1, 0)

    def __call__(self, F: Tensor) -> parts.Parts:
        return (torch.maximum(F, self.least),), ()


@dataclass(frozen=True, eq=False)
class BothAndGram:
    """VX, VᵀVX, and the Gram matrix of VX in float64."""

    X: Float[Tensor, "n k"]

    makes: ClassVar = (1, 2)

    def __call__(self, block: Any) -> parts.Parts:
        (Y,), (Z,) = parts.Both(self.X)(block)
        return (Y,), (Z, Y.double().mT @ Y.double())


@dataclass(frozen=True, eq=False)
class Remembered:
    """An update of W, the slope there, and products of W and VH with other matrices by rows.

    These are the sketch, W and VH themselves, and those of the pass before, in this order.
    """

    part: parts.Updated

    makes: ClassVar = (2, 4)

    def __call__(self, block: Any, sums: Tensor, W: Tensor, *others: Tensor) -> parts.Parts:
        (VH, W), (VtW, error) = self.part(block, sums, W)
        sketch, *before = others
        both = torch.cat([W, VH], 1)
        cross = both.double().mT @ torch.cat([sketch, both, *before], 1).double()
        gradient = W @ (self.part.H.mT @ self.part.H) - VH
        return (VH, W), (VtW, error, cross, sq_slope(W, gradient))


@dataclass(frozen=True, eq=False)
class FromSketch:
    """W where U ZᵀH stands for VH."""

    ZtH: Float[Tensor, "p r"]
    update: parts.Update

    makes: ClassVar = (1, 0)

    def __call__(self, U: Tensor) -> parts.Parts:
        VH = U @ self.ZtH
        return (self.update(VH, torch.zeros_like(VH)),), ()


def sq_slope(W: Tensor, gradient: Tensor) -> Float[Tensor, ""]:
    """The square of the norm of a projected gradient, in float64."""
    return torch.where(W > 0, gradient, gradient.clamp(max=0)).double().square().sum()
