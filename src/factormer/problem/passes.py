"""Other losses of data beyond memory: what a pass finds is kept, and not read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Blocks, Dense, Normal, Sparse, readings
from factormer.data.blocks import Turned
from factormer.data.factors import Factors
from factormer.data.parts import Parts
from factormer.problem.entrywise import EntryByEntry
from factormer.problem.loss import Loss

_PIECE = 2**20  # entries of a block that are fitted at a time


class Fit(NamedTuple):
    """A point, the value of its misfit, and the parts (A, B) of its gradients B − A.

    Those by H are on the right, those by W on the left.
    """

    x: Factors
    value: Float[Tensor, ""]
    right: tuple[Float[Tensor, "n r"], Float[Tensor, "n r"]]
    left: tuple[Float[Tensor, "m r"], Float[Tensor, "m r"]]


def matrix_of(block: Any, c: float) -> Dense | Sparse:
    """A block times c, as a matrix in memory."""
    if scipy.sparse.issparse(block):
        return Sparse.of(scipy.sparse.csr_array(c * block))
    return Dense(c * block)


def pieces(V: Dense | Sparse) -> Iterator[slice]:
    """Rows of which the fit takes little memory; all, where only stored entries are fitted."""
    (m, n), is_sparse = V.shape, isinstance(V, Sparse)
    step = m if is_sparse else max(1, _PIECE // n)
    return (slice(a, min(a + step, m)) for a in range(0, m, step))


def fit(V: Dense | Sparse, loss: Loss, x: Factors) -> Fit:
    """Value and gradients on some rows of V, in memory."""
    W, H = x
    if isinstance(V, Sparse):
        d, turned = EntryByEntry(V, loss), EntryByEntry(V.T, loss)
        return Fit(x, d.value(x), d.parts(x), turned.parts(x.swap()))
    by_H, by_W = ([torch.zeros_like(F) for _ in range(2)] for F in (H, W))
    value = torch.zeros((), dtype=torch.float64)
    for rows in pieces(V):
        v, y = V.entries[rows], W[rows] @ H.mT
        value += loss(v, y).double().sum()
        for k, part in enumerate(loss.parts(v, y)):
            by_H[k] += part.mT @ W[rows]
            by_W[k][rows] = part @ H
    return Fit(x, value.clamp(min=0), (by_H[0], by_H[1]), (by_W[0], by_W[1]))


@dataclass(frozen=True, eq=False)
class Misfits:
    """Value and gradients at (W, H), of c·V."""

    H: Float[Tensor, "n r"]
    loss: Loss
    c: float

    makes: ClassVar = (2, 3)

    @readings.counted()  # what is read again of a block is no pass
    def __call__(self, block: Any, W: Tensor) -> Parts:
        found = fit(matrix_of(block, self.c), self.loss, Factors(W, self.H))
        return found.left, (found.value, *found.right)


@dataclass(frozen=True, eq=False)
class FromPasses:
    """Σ d(V, W Hᵀ) over all entries of a matrix in blocks, or of its transpose."""

    V: Blocks | Turned
    loss: Loss

    def value(self, x: Factors) -> Float[Tensor, ""]:
        """The sum, in float64."""
        return self._fit(x).value

    def sq_error(self, x: Factors, known: Normal | None = None) -> Float[Tensor, ""]:
        """Twice the value: the squared error is that of β = 2."""
        return 2 * self.value(x)

    def blurred(self) -> Float[Tensor, ""]:
        """0: no digits are lost."""
        return torch.zeros((), dtype=self.V.dtype)

    def gradient(self, x: Factors) -> Float[Tensor, "n r"]:
        """The gradient by H."""
        up, down = self.parts(x)
        return down - up

    def parts(self, x: Factors) -> tuple[Float[Tensor, "n r"], Float[Tensor, "n r"]]:
        """Nonnegative (A, B) such that the gradient by H is B − A."""
        found = self._fit(x)
        return found.left if isinstance(self.V, Turned) else found.right

    def _fit(self, x: Factors) -> Fit:
        """What the last passes found at x; if they were elsewhere, by a pass."""
        V = self.V
        if isinstance(V, Turned):
            V, x = V.V, x.swap()
        if (found := V.fit_at(x)) is not None:
            return found
        up_down, (value, *by_H) = V.sweep(Misfits(x.H, self.loss, V.scale), x.W)
        found = Fit(x, value, (by_H[0], by_H[1]), (up_down[0], up_down[1]))
        V.keep_fit(found)
        return found
