"""One order and one scale for components that could come in any: W P⁻¹ and P H are as good."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors
from factormer.data.intake import to_numpy


def canonical(x: Factors, order: str | None, scale: str | None) -> Factors:
    """The same components, in order and to scale.

    Order "share": by the size ‖w_c h_cᵀ‖ of their part of the whole, the largest first. Scale
    "balanced": ‖w_c‖ = ‖h_c‖; "sum": h_c sums to 1. Components of zeros are not scaled.
    """
    w, h = lengths(x.W), lengths(x.H)
    root_w, root_h = np.sqrt(w), np.sqrt(h)  # whose product is a number where w·h may be none
    share, factor = root_w * root_h, np.ones_like(w)
    if scale == "balanced":
        np.divide(root_h, root_w, out=factor, where=share > 0)
    elif scale == "sum":
        total = to_numpy(x.H.sum(dim=0))
        factor = np.where(total > 0, total, factor)
    if order is not None:
        places = np.argsort(-share, kind="stable")
        at = torch.from_numpy(places).to(x.W.device)
        x, factor = Factors(x.W.index_select(1, at), x.H.index_select(1, at)), factor[places]
    if scale is None:
        return x
    times = torch.from_numpy(factor).to(x.W)
    return Factors(x.W * times, x.H / times)


def lengths(F: Float[Tensor, "m r"]) -> np.ndarray:
    """The length of each column, in float64, of numbers of any size."""
    length = to_numpy(torch.linalg.vector_norm(F, dim=0, dtype=torch.float64))
    known = length.tolist()  # whose extremes are found sooner than those of a small array
    if min(known) > 1e-150 and max(known) < 1e150:  # no square has left the numbers
        return length
    F = F.double()
    largest = F.abs().amax(dim=0)
    unit = F / torch.where(largest > 0, largest, torch.ones_like(largest))
    return to_numpy(largest * unit.norm(dim=0))
