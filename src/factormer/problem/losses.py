"""The β-divergences: squared error, Kullback–Leibler, Itakura–Saito, and all between and beyond."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from factormer.problem.loss import Each, Loss, floored
from factormer.sentence import Sentence

NAMES = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}
SHORT = {"fro": "frobenius", "kl": "kullback-leibler", "is": "itakura-saito"}
LARGEST = 100  # β whose powers do not overflow
_NEAR = 1e-9  # of 0, 1 or 2: a β that counts as that


@dataclass(frozen=True)
class Beta(Loss):
    """d(v, y) = (v^β + (β−1) y^β − β v y^(β−1)) / (β(β−1)), with its limits at β = 1 and β = 0.

    β = 2 is ½(v − y)², β = 1 is v log(v/y) − v + y, β = 0 is v/y − log(v/y) − 1. It is never
    negative, and d(cv, cy) = c^β d(v, y). Convex in y for 1 ≤ β ≤ 2; beyond that the sum of a
    convex and a concave part.
    """

    beta: float = 2.0

    def __str__(self) -> str:
        return f"β = {self.beta:g}"

    @property
    def title(self) -> str:
        """Return the name that people know the sum of d by."""
        known = {1.0: "Kullback–Leibler", 0.0: "Itakura–Saito"}.get(self.beta, f"β = {self.beta:g}")
        return f"{known} divergence"

    @property
    def kernel_beta(self) -> float:
        return self.beta

    @property
    def degree(self) -> float:
        return self.beta

    @property
    def is_quadratic(self) -> bool:
        return self.beta == 2

    @property
    def is_for_counts(self) -> bool:
        """Whether d is the likelihood of counts (β = 1, Poisson's)."""
        return self.beta == 1

    @property
    def zero_slope(self) -> float | None:
        return 1.0 if self.beta == 1 else None

    @property
    def has_pole(self) -> bool:
        return self.beta <= 0

    def __call__(self, v: Each, y: Each) -> Each:
        """d(v, y), entry by entry; y is taken to be at least tiny where d has a pole at zero."""
        b = self.beta
        if self.is_quadratic:
            return (v - y).square() / 2
        y = floored(y)
        if b == 1:
            return v * floored(v / y).log() - v + y
        if b == 0:
            return v / y - (v / y).log() - 1
        return (v**b + y ** (b - 1) * ((b - 1) * y - b * v)) / (b * (b - 1))

    def slope(self, v: Each, y: Each) -> Each:
        """∂d/∂y = y^(β−2) (y − v)."""
        if self.is_quadratic:
            return y - v
        y = floored(y)
        return 1 - v / y if self.beta == 1 else y ** (self.beta - 2) * (y - v)

    def curvature(self, v: Each, y: Each) -> Each:
        """∂²d/∂y² = y^(β−3) ((β−1) y + (2−β) v)."""
        if self.is_quadratic:
            return torch.ones_like(y)
        y, b = floored(y), self.beta
        return y ** (b - 3) * ((b - 1) * y + (2 - b) * v)

    def parts(self, v: Each, y: Each) -> tuple[Each, Each]:
        """(v y^(β−2), y^(β−1)): what pulls y up, and what holds it down."""
        y = floored(y)
        if self.beta == 1:
            return v / y, torch.ones_like(y)
        pull = y ** (self.beta - 2)
        return v * pull, y * pull

    @property
    def exponent(self) -> float:
        """The power of a multiplicative update that never raises d (Févotte & Idier, 2011)."""
        if self.beta < 1:
            return 1 / (2 - self.beta)
        return 1 / (self.beta - 1) if self.beta > 2 else 1.0

    def prox(
        self,
        v: Each,
        x: Each,
        weight: Each | float,
        *,
        near: Each | None = None,
        n_iter: int = 15,
    ) -> Each:
        """The y > 0 that minimises weight·d(v, y) + ½(y − x)².

        In closed form for β = 1 and 2. Otherwise the answer is between v and x, and Newton's method
        descends to it from the larger, or from a guess `near` it; if it leaves the bounds, it
        continues between them. It ends when the next step would be a rounding error.
        """
        tiny = torch.finfo(x.dtype).tiny
        if self.is_quadratic:
            return (x + weight * v) / (1 + weight)
        if self.beta == 1:
            shifted = x - weight
            root = (shifted.square() + 4 * weight * v).sqrt()
            low = 2 * weight * v / (root - shifted).clamp(min=tiny)
            return torch.where(shifted > 0, (shifted + root) / 2, low)
        b = self.beta
        known = torch.as_tensor(weight > 0, device=x.device).expand_as(x)
        v = torch.where(known, v, x)  # entries without weight stay
        low, high = floored(torch.minimum(x, v)), floored(torch.maximum(x, v))
        if b < 2:  # from w y^(β−2) (v − y) = y − x a bound above 0 where x is not
            least = (weight * v / 2 / (v + x.abs()).clamp(min=tiny)) ** (1 / (2 - b))
            low = torch.where(x > 0, low, floored(torch.minimum(v / 2, least)))
        y = high if near is None else torch.minimum(torch.maximum(near, low), high)
        eps, p, q = torch.finfo(x.dtype).eps, max(2 - b, 0.0), max(b - 2, 0.0)
        close, blur = eps**0.5 / 16, 16 * eps * (v + x.abs())
        for k in range(n_iter):
            before, up, down = y, y**p, weight * y**q
            slope = down * (y - v) + up * (y - x)  # times y^(2 − β) where β < 2: so it is convex
            bend = down + up + q * down * (y - v) / y + p * up * (y - x) / y
            low, high = torch.where(slope < 0, y, low), torch.where(slope < 0, high, y)
            newton = y - slope / bend
            inside = (newton >= low) & (newton <= high)
            y = torch.where(inside, newton, low.sqrt() * high.sqrt() if k or near is None else high)
            short = inside & ((y - before).abs() <= close * y + blur)
            if bool((short | (high - low <= blur)).all()):
                break
        return y


_NAMED = {name: Beta(beta) for name, beta in NAMES.items()}
FROBENIUS = _NAMED["frobenius"]


def as_loss(given: Any) -> Loss:
    """From one of scikit-learn's names, a short one ("kl"), the number β, or a loss."""
    if isinstance(given, Loss):
        return given
    if isinstance(given, str):
        given = SHORT.get(given, given)
    if isinstance(given, str) and given in NAMES:
        return _NAMED[given]
    number: Any = given if isinstance(given, int | float) else math.nan
    if abs(number - 1) < _NEAR or abs(number) < _NEAR or abs(number - 2) < _NEAR:
        number = round(number)  # between, the formulas of the limits have no digits
    if isinstance(given, bool) or not abs(number) <= LARGEST:
        names = ", ".join(repr(name) for name in NAMES)
        raise ValueError(
            Sentence(
                "{loss} is {given!r}; choose {names}, or a number β (2, 1 and 0 are these) from "
                "-{largest} to {largest}",
                given=given,
                names=names,
                largest=LARGEST,
            )
        )
    return Beta(float(number))
