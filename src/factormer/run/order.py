"""One order and one scale for components that could come in any: W P⁻¹ and P H are as good."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors

_DIGITS = 9  # of a share; two that differ by less are equal, and stay as they came


def canonical(x: Factors, order: str | None, scale: str | None) -> Factors:
    """The same components, in order and to scale; of one matrix, or of each of a stack.

    Order "share": by `shares`, the largest first. Scale "balanced": ‖w_c‖ = ‖h_c‖; "sum": h_c sums
    to 1. Components of zeros are not scaled.
    """
    if order is not None:
        places = (-shares(x)).round(decimals=_DIGITS).argsort(dim=-1, stable=True)[..., None, :]
        x = Factors(*(F.gather(-1, places.expand(F.shape)) for F in x))
    if scale is None:
        return x
    if scale == "sum":
        up, down = x.H.sum(dim=-2, dtype=torch.float64), 1.0
    else:
        up, down = lengths(x.H).sqrt(), lengths(x.W).sqrt()  # roots, lest a ratio leave the numbers
    times = (up / down).to(x.W)
    times = torch.where(times.isfinite() & (times > 0), times, 1.0)[..., None, :]
    return Factors(x.W * times, x.H / times)


def shares(x: Factors) -> Float[Tensor, "*b r"]:
    """The share of each component in Σ W Hᵀ, by absolute values; of numbers of any size."""
    w, h = (F.abs().sum(dim=-2, dtype=torch.float64) for F in x)
    w, h = (s / s.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(s.dtype).tiny) for s in (w, h))
    sizes = w * h
    return sizes / sizes.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(sizes.dtype).tiny)


def lengths(F: Float[Tensor, "*b m r"]) -> Float[Tensor, "*b r"]:
    """The length of each column, in float64, of numbers of any size."""
    length = torch.linalg.vector_norm(F, dim=-2, dtype=torch.float64)
    if bool(((length > 1e-150) & (length < 1e150)).all()):  # no square has left the numbers
        return length
    F = F.double()
    largest = F.abs().amax(dim=-2)
    unit = F / torch.where(largest > 0, largest, 1.0)[..., None, :]
    return largest * unit.norm(dim=-2)
