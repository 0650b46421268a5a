"""Compressed data: V ≈ U Zᵀ of low rank, on which an iteration costs (m + n)p instead of mn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.base import Matrix, Normal, inner
from factormer.data.dense import product, row_major, turned_product
from factormer.data.factors import Factors

# Eigenvalues of a Gram matrix of unit columns, relative to the largest, that count as zero.
_RANK = {torch.float32: 1e-5, torch.float64: 1e-10}

# Norm of what a column has beyond a sketch, relative to its own, that counts as rounding.
_BEYOND = {torch.float32: 1e-4, torch.float64: 1e-9}


@dataclass(frozen=True, eq=False)
class LowRank:
    """The matrix U Zᵀ, and ‖V − U Zᵀ‖² of the matrix V that it stands for.

    `sq_error` adds `lost` to the error of U Zᵀ: that is the error on V up to the overlap of W Hᵀ
    with what was lost.
    """

    U: Float[Tensor, "m p"]
    Z: Float[Tensor, "n p"]
    lost: Float[Tensor, ""]

    rows = None
    cols = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.U), len(self.Z))

    @property
    def dtype(self) -> torch.dtype:
        return self.U.dtype

    @property
    def device(self) -> torch.device:
        return self.U.device

    def sq_norm(self) -> Float[Tensor, ""]:
        """‖V‖² in float64, including what was lost."""
        return self._sq_norm

    @cached_property
    def _sq_norm(self) -> Float[Tensor, ""]:
        return inner(self.U.mT @ self.U, self.Z.mT @ self.Z) + self.lost

    def work(self) -> float:
        """The number of multiplications in a product with one column."""
        return float(self.U.numel() + self.Z.numel())

    @property
    def T(self) -> LowRank:
        return self._transposed

    @cached_property
    def _transposed(self) -> LowRank:
        return LowRank(self.Z, self.U, self.lost)

    @cached_property
    def chain(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Arrays, by rows and in float64, that Wᵀ and Hᵀ are multiplied with in turn."""
        U, Z = self.U, self.Z
        return (row_major(U), row_major(Z.mT)), (row_major(Z), row_major(U.mT))

    def __matmul__(self, X: Float[Tensor, "n k"]) -> Float[Tensor, "m k"]:
        return product(self.U, turned_product(self.Z, X))

    def normal(self, W: Float[Tensor, "m r"]) -> Normal:
        """Return (Z UᵀW, WᵀW)."""
        return Normal(self.T @ W, W.mT @ W)

    def sq_error(self, x: Factors) -> Float[Tensor, ""]:
        """‖W Hᵀ − U Zᵀ‖² + lost, by the Gram expansion in float64."""
        fit = inner(x.W.mT @ x.W, x.H.mT @ x.H) - 2 * inner(self @ x.H, x.W)
        return (self.sq_norm() + fit).clamp(min=0)

    def total(self) -> Float[Tensor, ""]:
        """The sum of all entries."""
        return self.U.sum(dim=0) @ self.Z.sum(dim=0)

    def scaled(self, c: Float[Tensor, ""]) -> LowRank:
        """The matrix c·V."""
        return LowRank(self.U, c * self.Z, c.double() ** 2 * self.lost)

    def to(self, dtype: torch.dtype) -> LowRank:
        """The matrix in another precision."""
        return LowRank(self.U.to(dtype), self.Z.to(dtype), self.lost)

    def blocks(self, size: int | None) -> Iterator[tuple[slice, Float[Tensor, "k n"]]]:
        """Yield the rows in dense blocks of at most `size` (None: all at once)."""
        m = self.shape[0]
        for start in range(0, m, size or m):
            rows = slice(start, min(start + (size or m), m))
            yield rows, self.U[rows] @ self.Z.mT


def sketch(V: Matrix, p: int, rng: torch.Generator, *, n_power: int = 1) -> LowRank:
    """V ≈ Q (VᵀQ)ᵀ with orthonormal Q (m, p), by a randomized range finder (Halko et al., 2011).

    V is read 2 + 2·n_power times, first with random columns. Between two reads the columns are made
    orthonormal in float32, and only normalised in float64, which has enough digits to separate
    singular vectors whose values differ by 10⁵.
    """
    m, n = V.shape
    p, tidy = min(p, m, n), _unit if V.dtype == torch.float64 else orthonormal
    Y = V @ torch.randn(n, p, generator=rng).to(V.device, V.dtype)
    for _ in range(n_power):
        Y = V @ tidy(V.T @ tidy(Y))
    Q = orthonormal(Y)
    Z = (V.T @ Q).contiguous()
    return LowRank(Q, Z, (V.sq_norm() - inner(Z, Z)).clamp(min=0))


def agreeing(
    V: Matrix,
    W: Float[Tensor, "m j"],
    VtW: Float[Tensor, "n j"],
    H: Float[Tensor, "n k"],
    VH: Float[Tensor, "m k"],
) -> LowRank:
    """The matrix V̂ of rank 2r with the same products with W and H: V̂ᵀW = VᵀW and V̂H = VH.

    V̂ = QQᵀV + (I − QQᵀ)VPPᵀ, with orthonormal Q and P that span W and H, so near (W, H) it is V up
    to terms of second order: W̃ H̃ᵀ meets V − V̂ only with what both have beyond those spans.
    """
    by_W, by_H = whitening(W), whitening(H)
    Q, VtQ, P, VP = W @ by_W, VtW @ by_W, H @ by_H, VH @ by_H
    across = VtQ.mT @ P  # QᵀVP
    VP = VP - Q @ across
    lost = V.sq_norm() - inner(VtQ, VtQ) - inner(VP, VP)
    return LowRank(torch.cat([Q, VP], 1), torch.cat([VtQ, P], 1), lost.clamp(min=0))


def enriched(
    V: Matrix,
    sketch: LowRank | None,
    W: Float[Tensor, "m j"],
    VtW: Float[Tensor, "n j"],
    H: Float[Tensor, "n k"],
    VH: Float[Tensor, "m k"],
) -> LowRank:
    """`agreeing`, which in addition has the products of V with the orthonormal basis of a sketch.

    V̂ = QQᵀV + (I − QQᵀ)VPPᵀ as there, but Q spans W and the sketch.
    """
    if sketch is None:
        return agreeing(V, W, VtW, H, VH)
    Q, VtQ = sketch.U, sketch.Z
    size = W.norm(dim=0).clamp(min=torch.finfo(W.dtype).tiny)
    rest, VtR = W / size, VtW / size
    for _ in range(2):  # what W has beyond the sketch; the second time to all digits
        inside = Q.mT @ rest
        rest, VtR = rest - Q @ inside, VtR - VtQ @ inside
        size = rest.norm(dim=0)
        beyond = size > _BEYOND[W.dtype]
        rest, VtR = rest[:, beyond] / size[beyond], VtR[:, beyond] / size[beyond]
    if rest.shape[1]:
        by_rest = whitening(rest)
        Q, VtQ = torch.cat([Q, rest @ by_rest], 1), torch.cat([VtQ, VtR @ by_rest], 1)
    by_H = whitening(H)
    P, VP = H @ by_H, VH @ by_H
    VP = VP - Q @ (VtQ.mT @ P)
    lost = V.sq_norm() - inner(VtQ, VtQ) - inner(VP, VP)
    return LowRank(torch.cat([Q, VP], 1), torch.cat([VtQ, P], 1), lost.clamp(min=0))


def whitening(W: Float[Tensor, "m j"]) -> Float[Tensor, "j k"]:
    """C for which the columns of W C are orthonormal and span those of W, up to rounding."""
    size = W.norm(dim=0).double().clamp(min=torch.finfo(W.dtype).tiny)
    return whitening_by((W.mT @ W).double(), size, _RANK[W.dtype]).to(W.dtype)


def whitening_by(
    gram: Float[Tensor, "j j"], size: Float[Tensor, " j"], least: float
) -> Float[Tensor, "j k"]:
    """Whiten W by WᵀW and the norms of columns; eigenvalues up to `least` count as zero."""
    if not bool(gram.any()):  # of a W of zeros, which one column of them spans
        return torch.eye(len(gram), 1, dtype=gram.dtype, device=gram.device)
    unit = gram / size[:, None] / size
    found = torch.linalg.eigh(unit.cpu())  # a GPU would take longer for so few numbers
    values, vectors = (part.to(gram.device) for part in found)
    clear = values > least * values[-1]
    return vectors[:, clear] / values[clear].sqrt() / size[:, None]


def _unit(Y: Float[Tensor, "m p"]) -> Float[Tensor, "m p"]:
    return Y / Y.norm(dim=0).clamp(min=torch.finfo(Y.dtype).tiny)


def orthonormal(Y: Float[Tensor, "m p"]) -> Float[Tensor, "m p"]:
    """An orthonormal basis of the columns."""
    return torch.linalg.qr(Y).Q
