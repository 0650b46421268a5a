"""From logits on curves held out to probabilities that are as frequent as they say."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

PROMISED = 0.95  # share of the clear choices that are exact
_BINS = 10


def temperature_of(logits: Float[Tensor, "b k"], target: Int[Tensor, "b"]) -> float:
    """The temperature of the greatest likelihood, by search on a grid (Guo et al., 2017)."""
    grid = torch.logspace(-0.5, 0.7, 121)
    losses = [float(F.cross_entropy(logits / t, target)) for t in grid]
    return float(grid[min(range(len(losses)), key=losses.__getitem__)])


def threshold_of(probabilities: Float[Tensor, "b k"], target: Int[Tensor, "b"]) -> float:
    """The lowest probability from which on all choices together are exact as often as promised."""
    best, at = probabilities.max(1)
    order = best.argsort(descending=True)
    exact = (at == target)[order].double()
    share = exact.cumsum(0) / torch.arange(1, len(exact) + 1)
    good = (share >= PROMISED).nonzero()
    return float(best[order][int(good[-1])]) if len(good) else 1.0


def rates(
    probabilities: Float[Tensor, "b k"], target: Int[Tensor, "b"], threshold: float
) -> dict[str, Any]:
    """How often choices are exact, off by at most one, and clear; and how honest they are."""
    best, at = probabilities.max(1)
    exact, clear = (at == target).double(), best >= threshold
    return {
        "problems": len(target),
        "exact": round(float(exact.mean()), 3),
        "within one": round(float(((at - target).abs() <= 1).double().mean()), 3),
        "clear": round(float(clear.double().mean()), 3),
        "exact where clear": round(float(exact[clear].mean()), 3) if bool(clear.any()) else None,
        "calibration error": round(calibration_error(best, exact), 3),
    }


def calibration_error(best: Float[Tensor, "b"], exact: Float[Tensor, "b"]) -> float:
    """The mean gap between the probability of a choice and how often it is exact, over bins."""
    bins, gap = (best * _BINS).long().clamp(max=_BINS - 1), 0.0
    for number in range(_BINS):
        inside = bins == number
        if bool(inside.any()):
            gap += float(abs(best[inside].double().mean() - exact[inside].mean()) * inside.sum())
    return gap / len(best)
