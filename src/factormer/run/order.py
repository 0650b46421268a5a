"""One order and one scale for components, which the fit leaves open: W P⁻¹ and P H fit as well."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.factors import Factors

SCALES = {None: 0, "balanced": 1, "sum": 2}  # as compiled code knows them
_DIGITS = 9  # of a share; two that differ by less count as equal and keep their order
_TINY = np.finfo(float).tiny


def canonical(x: Factors, order: str | None, scale: str | None) -> Factors:
    """Put components in order and to scale, of one matrix or of each of a stack.

    Order "share": by `shares`, the largest first. Scale "balanced": ‖w_c‖ = ‖h_c‖; "sum": h_c sums
    to 1. Components of zeros are not scaled.
    """
    if order is not None:
        places = np.argsort(-shares(x).round(_DIGITS), axis=-1, kind="stable")
        x = _arranged(x, torch.from_numpy(places).to(x.W.device))
    if scale is None:
        return x
    with np.errstate(all="ignore"):
        if scale == "sum":
            times = x.H.sum(dim=-2, dtype=torch.float64).cpu().numpy()
        else:  # roots, so that no ratio overflows
            times = np.sqrt(lengths(x.H)) / np.sqrt(lengths(x.W))
        times = np.where(np.isfinite(times) & (times > 0), times, 1.0)
    by = torch.from_numpy(times).to(x.W)[..., None, :]
    W = x.W * by
    fits = W.isfinite().all(dim=-2, keepdim=True) & (by > 0)  # in the precision of the factors
    if not bool(fits.all()):
        by = torch.where(fits, by, 1.0)
        W = x.W * by
    return Factors(W, x.H / by)


def _arranged(x: Factors, places: Tensor) -> Factors:
    if places.dim() == 1:
        return Factors(x.W.index_select(1, places), x.H.index_select(1, places))
    places = places[..., None, :]
    return Factors(*(F.gather(-1, places.expand(F.shape)) for F in x))


def shares(x: Factors) -> Float[np.ndarray, "*b r"]:
    """The share of each component in Σ W Hᵀ, by absolute values; without overflow."""
    w, h = (F.abs().sum(dim=-2, dtype=torch.float64).cpu().numpy() for F in x)
    w, h = (s / np.maximum(s.max(axis=-1, keepdims=True), _TINY) for s in (w, h))
    sizes = w * h
    return sizes / np.maximum(sizes.sum(axis=-1, keepdims=True), _TINY)


def lengths(F: Float[Tensor, "*b m r"]) -> Float[np.ndarray, "*b r"]:
    """The length of each column, in float64, without overflow."""
    length = torch.linalg.vector_norm(F, dim=-2, dtype=torch.float64).cpu().numpy()
    if ((length > 1e-150) & (length < 1e150)).all():  # no square has over- or underflown
        return length
    F = F.double()
    largest = F.abs().amax(dim=-2)
    unit = F / torch.where(largest > 0, largest, 1.0)[..., None, :]
    return (largest * unit.norm(dim=-2)).cpu().numpy()
