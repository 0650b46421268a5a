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
from factormer.data.spread import sq_slope
from factormer.problem.entrywise import EntryByEntry
from factormer.problem.loss import Loss

_PIECE = 2**20  # entries of a block that are fitted at a time


class Fit(NamedTuple):
    """A point, the value of its misfit, and the parts (A, B) of its gradients B − A.

    Those by H are on the right, those by W, which few need, on the left. `slope` is the sum of the
    squares of the projected gradient by W.
    """

    x: Factors
    value: Float[Tensor, ""]
    right: tuple[Float[Tensor, "n r"], Float[Tensor, "n r"]]
    slope: Float[Tensor, ""]
    left: tuple[Float[Tensor, "m r"], Float[Tensor, "m r"]] | None = None


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
        left = turned.parts(x.swap())
        return Fit(x, d.value(x), d.parts(x), sq_slope(W, left[1] - left[0]), left)
    by_H, by_W = ([torch.zeros_like(F) for _ in range(2)] for F in (H, W))
    value = torch.zeros((), dtype=torch.float64)
    for rows in pieces(V):
        v, y = V.entries[rows], W[rows] @ H.mT
        value += loss(v, y).double().sum()
        for k, part in enumerate(loss.parts(v, y)):
            by_H[k] += part.mT @ W[rows]
            by_W[k][rows] = part @ H
    slope = sq_slope(W, by_W[1] - by_W[0])
    return Fit(x, value.clamp(min=0), (by_H[0], by_H[1]), slope, (by_W[0], by_W[1]))


@dataclass(frozen=True, eq=False)
class Misfits:
    """Value and gradients at (W, H), of c·V."""

    H: Float[Tensor, "n r"]
    loss: Loss
    c: float

    makes: ClassVar = (2, 4)

    @readings.counted()  # what is read again of a block is no pass
    def __call__(self, block: Any, W: Tensor) -> Parts:
        found = fit(matrix_of(block, self.c), self.loss, Factors(W, self.H))
        assert found.left is not None
        return found.left, (found.value, *found.right, found.slope)


@dataclass(frozen=True, eq=False)
class FromPasses:
    """Σ d(V, W Hᵀ) over all entries of a matrix in blocks, or of its transpose."""

    V: Blocks | Turned
    loss: Loss

    def value(self, x: Factors) -> Float[Tensor, ""]:
        """The sum, in float64."""
        return self._fit(*_upright(self.V, x)).value

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
        if not isinstance(self.V, Turned):
            return self._fit(self.V, x).right
        left = self._fit(self.V.V, x.swap(), by_W=True).left
        assert left is not None
        return left

    def slope(self, x: Factors) -> Float[Tensor, ""]:
        """The square of the norm of the projected gradient by W."""
        assert isinstance(self.V, Blocks)
        return self._fit(self.V, x).slope

    def _fit(self, V: Blocks, x: Factors, *, by_W: bool = False) -> Fit:
        """Return what the last passes found at x; if they were elsewhere, make a pass."""
        found = V.fit_at(x)
        if found is not None and not (by_W and found.left is None):
            return found
        left, (value, *right, slope) = V.sweep(Misfits(x.H, self.loss, V.scale), x.W)
        found = Fit(x, value, (right[0], right[1]), slope, (left[0], left[1]))
        V.keep_fit(found)
        return found


def _upright(V: Blocks | Turned, x: Factors) -> tuple[Blocks, Factors]:
    """The matrix in blocks of rows, and the point as one of it."""
    return (V.V, x.swap()) if isinstance(V, Turned) else (V, x)
