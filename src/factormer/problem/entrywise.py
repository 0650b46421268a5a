"""Any loss, with weights and unknown entries: entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.data import Dense, Matrix, Normal, Observed, Sparse
from factormer.data.factors import Factors
from factormer.data.sparse import Rows
from factormer.problem.loss import Loss

_BLOCK = 2**20  # entries of V per block
_NEAR = 1e-5  # share of an entry that its fit is taken to be at least, where it curves
_ROWS = 2**12  # rows of W whose products by pairs are held at a time


@dataclass(frozen=True, eq=False)
class EntryByEntry:
    """Σ ω d(V, W Hᵀ), where V carries the weights ω (`Observed`), or has none."""

    V: Matrix
    loss: Loss

    def value(self, x: Factors) -> Float[Tensor, "*b"]:
        """The sum, in float64; rounding cannot make it negative."""
        d, V = self.loss, self.V
        if isinstance(V, Sparse) and d.zero_slope is not None:  # zeros count, and cost s·y
            total = d.zero_slope * (x.W.double().sum(dim=0) * x.H.double().sum(dim=0)).sum()
            for v, y, _ in _stored(V, x):
                total = total + (d(v, y) - d.zero_slope * y).double().sum()
        else:
            parts = ((v, y, w) for v, y, w, _ in _weighted(V, x))
            if d.is_quadratic:  # whose squares may overflow float32
                parts = ((v.double(), y.double(), w) for v, y, w in parts)
            total = torch.stack([_sum(w, d(v, y)) for v, y, w in parts]).sum(dim=0)
        return total.clamp(min=0)

    def sq_error(self, x: Factors, known: Normal | None = None) -> Float[Tensor, "*b"]:
        """Twice the value: the squared error is that of β = 2."""
        return 2 * self.value(x)

    def blurred(self) -> Float[Tensor, "*b"]:
        """0: no digits are lost."""
        return torch.zeros(self.V.shape[:-2], dtype=self.V.dtype, device=self.V.device)

    def gradient(self, x: Factors) -> Float[Tensor, "*b n r"]:
        """The gradient by H."""
        d, V, (W, H) = self.loss, self.V, x
        if isinstance(V, Sparse) and d.zero_slope is not None:
            out = d.zero_slope * W.sum(dim=0).expand_as(H)
            for v, y, at in _stored(V, x):
                _add(out, W, at, d.slope(v, y) - d.zero_slope)
            return out
        out = torch.zeros_like(H)
        for v, y, w, at in _weighted(V, x):
            slope = d.slope(v, y)
            _add(out, W, at, slope if w is None else w * slope)
        return out

    def parts(self, x: Factors) -> tuple[Float[Tensor, "*b n r"], Float[Tensor, "*b n r"]]:
        """Nonnegative (A, B) such that the gradient by H is B − A."""
        d, V, (W, H) = self.loss, self.V, x
        up = torch.zeros_like(H)
        if isinstance(V, Sparse) and d.zero_slope is not None:
            for v, y, at in _stored(V, x):
                _add(up, W, at, d.parts(v, y)[0])
            return up, d.zero_slope * W.sum(dim=0).expand_as(H)
        down = torch.zeros_like(H)
        for v, y, w, at in _weighted(V, x):
            for out, part in zip((up, down), d.parts(v, y), strict=True):
                _add(out, W, at, part if w is None else w * part)
        return up, down

    def curvature(self, x: Factors) -> Float[Tensor, "n rr"]:
        """Σ_i ω d″ w_i w_iᵀ for each column of one matrix, its r² numbers in a row; d″ ≥ 0."""
        d, V, (W, H) = self.loss, self.V, x
        out = H.new_zeros(len(H), H.shape[1] ** 2)
        if isinstance(V, Sparse) and d.zero_slope is not None:  # and so no curvature at zeros
            found = ((v, y, None, at) for v, y, at in _stored(V, x))
        else:
            found = _weighted(V, x)
        for v, y, w, at in found:
            bend = d.curvature(v, torch.maximum(y, _NEAR * v))  # 0·∞ where both are 0
            bend = bend.nan_to_num(nan=0.0, posinf=0.0).clamp(min=0)
            bend = bend if w is None else w * bend
            if isinstance(at, slice):
                out += bend.mT @ _pairs(W[at])
            elif at.whole is None:
                out.index_add_(0, at.columns, _pairs(W[at.rows]) * bend[:, None])  # pyright: ignore
            else:
                starts, columns = at.whole.places
                csr = scipy.sparse.csr_array((bend.numpy(), columns, starts), V.shape)
                for a in range(0, len(W), _ROWS):
                    some = csr[a : a + _ROWS]
                    out += torch.from_numpy(some.T @ _pairs(W[a : a + _ROWS]).numpy())
        return out


def _pairs(W: Float[Tensor, "k r"]) -> Float[Tensor, "k rr"]:
    """All products of two entries of a row."""
    return (W[:, :, None] * W[:, None, :]).flatten(1)


class _Entries(NamedTuple):
    """Stored entries: their rows and columns, or, for compiled loops, all of the matrix."""

    rows: Tensor | None = None
    columns: Tensor | None = None
    whole: Rows | None = None


def _add(out: Tensor, W: Tensor, at: slice | _Entries, part: Tensor) -> None:
    """Add partᵀ W of some entries to `out`."""
    if isinstance(at, slice):
        out += part.mT @ W[..., at, :]
    elif at.whole is None:
        assert at.rows is not None
        assert at.columns is not None
        out.index_add_(0, at.columns, W[at.rows] * part[:, None])
    else:
        loops = kernels.stored_entries("sums", kernels.real(W.dtype))
        assert loops is not None
        sums = out.contiguous()  # itself, if it is by rows
        arrays = (part.contiguous().numpy(), W.contiguous().numpy(), sums.numpy())
        loops.sums(kernels.real(W.dtype))(*at.whole.places, *arrays)
        if sums is not out:
            out.copy_(sums)


def _stored(V: Sparse, x: Factors) -> Iterator[tuple[Tensor, Tensor, _Entries]]:
    """Stored entries v, their fit y, and where they are; in blocks, or compiled all at once."""
    at, real = V.by_rows, kernels.real(V.dtype)
    loops = kernels.stored_entries("fits", real) if _is_plain(V, x) else None
    if loops is not None and kernels.stored_entries("sums", real) is not None:
        y = at.values.new_empty(len(at.values))
        loops.fits(real)(*at.places, *(F.contiguous().numpy() for F in x), y.numpy())
        yield V.scale * at.values, y, _Entries(whole=at)
        return
    counts = at.starts.diff().long()
    rows = torch.repeat_interleave(torch.arange(len(counts), device=V.device), counts)
    size = max(1, _BLOCK // x.W.shape[-1])
    for a in range(0, max(len(rows), 1), size):
        i, j = rows[a : a + size], at.columns[a : a + size].long()
        fit = (x.W[i] * x.H[j]).sum(dim=-1)
        yield V.scale * at.values[a : a + size], fit, _Entries(i, j)


def _is_plain(V: Sparse, x: Factors) -> bool:
    on_cpu = V.device.type == "cpu" and not torch.is_grad_enabled()
    return on_cpu and V.dtype == x.W.dtype == x.H.dtype


def _weighted(
    V: Matrix, x: Factors
) -> Iterator[tuple[Tensor, Tensor, Tensor | None, slice | _Entries]]:
    """Entries v, their fit y and weights, and where: a slice of rows, or stored entries."""
    if isinstance(V, Observed) and isinstance(V.V, Sparse):
        start = 0
        for v, y, at in _stored(V.V, x):
            yield v, y, V.weights[start : start + len(v)], at
            start += len(v)
        return
    data = V.V if isinstance(V, Observed) else V
    many = len(V.shape) > 2
    for rows, v in data.blocks(None if many else max(1, _BLOCK // V.shape[-1])):
        w = V.weights[..., rows, :] if isinstance(V, Observed) else _real(V)
        yield v, x.W[..., rows, :] @ x.H.mT, w, rows


def _real(V: Matrix) -> Tensor | None:
    """Weights 0 for the padding of a stack."""
    if not isinstance(V, Dense) or V.rows is None or V.cols is None:
        return None
    return (V.rows[..., :, None] & V.cols[..., None, :]).to(V.dtype)


def _sum(w: Tensor | None, d: Tensor) -> Tensor:
    weighted = d.double() if w is None else torch.where(w > 0, w * d, 0).double()
    return weighted.sum() if d.dim() == 1 else weighted.sum(dim=(-2, -1))
