"""One order and one scale for components that could come in any: W P⁻¹ and P H are as good."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.factors import Factors


def lengths(F: Float[Tensor, "m r"]) -> Float[Tensor, " r"]:
    """The length of each column, in float64, of numbers of any size."""
    F = F.double()
    largest = F.abs().amax(dim=0)
    return largest * (F / torch.where(largest > 0, largest, torch.ones_like(largest))).norm(dim=0)


def by_share(x: Factors) -> Int[Tensor, " r"]:
    """The components by the size of their part ‖w_c h_cᵀ‖ of the whole, the largest first."""
    w, h = lengths(x.W), lengths(x.H)
    unit = torch.stack([w.amax(), h.amax()]).clamp(min=torch.finfo(torch.float64).tiny)
    return torch.argsort((w / unit[0]) * (h / unit[1]), descending=True, stable=True)


def balanced(x: Factors) -> Factors:
    """Scale each component so that its columns of W and H are of one length; zeros stay."""
    w, h = lengths(x.W), lengths(x.H)
    alive = (w > 0) & (h > 0)
    ones = torch.ones_like(w)
    root = torch.where(alive, (torch.where(alive, h, ones) / torch.where(alive, w, ones)), ones)
    root = root.sqrt().to(x.W.dtype)
    return Factors(x.W * root, x.H / root)


def summing_to_one(x: Factors) -> Factors:
    """Scale each component so that its column of H sums to 1; zeros stay."""
    total = x.H.sum(dim=0)
    total = torch.where(total > 0, total, torch.ones_like(total))
    return Factors(x.W * total, x.H / total)
