"""A penalty is a class with a value, a proximal step, and a rule for scaling.

A penalty is a value object. Shapes: n rows, r components, *b batch axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

X_ = Float[Tensor, "*b n r"]


@dataclass(frozen=True)
class Penalty:
    """λ·p(X), or a set that X has to be in; p of a set is zero.

    To add a penalty, write one subclass (a frozen dataclass) with a value and a proximal step; no
    solver changes. λ is its field `weight`.
    """

    # The place of its proximal step among others, such that each is the exact step of their sum:
    # entries, sets, groups, known columns. None: quadratic, part of the normal equations.
    order: ClassVar[int | None] = None
    degree: ClassVar[int] = 0  # p(c·X) = c^degree · p(X)
    firmness: ClassVar[int] = 0  # how far it fixes the size of X: 2 by a sum or bounds, 1 in part
    joins: ClassVar[bool] = True  # whether its step can follow, or be followed by, those of others

    @property
    def nonnegative(self) -> bool:
        """Whether X may have no negative entry."""
        return True

    @property
    def elastic(self) -> tuple[float, float] | None:
        """Return its weights as L1 and L2; None for other penalties."""
        return None

    @property
    def pull(self) -> X_ | None:
        """L where the value has −⟨L, X⟩ besides `elastic`; None if it has no such term."""
        return None

    @property
    def row_sum(self) -> float | None:
        """The sum of each row, if that is its only constraint; else None."""
        return None

    def value(self, X: X_) -> Float[Tensor, "*b"]:
        return X.new_zeros(X.shape[:-2])

    def prox(self, X: X_, t: Float[Tensor, "*b 1 1"]) -> X_:
        """The Z that minimises ½‖Z − X‖² + t·value(Z)."""
        return X

    def stretched(self, X: X_) -> X_:
        """A start X to scale, where X has to have a sum."""
        return X

    def quadratic(self, X: X_) -> tuple[Float[Tensor, "... r r"] | float, X_ | float, float]:
        """(A, L, μ) such that ½⟨X A, X⟩ − ⟨L, X⟩ + ½μΣ‖Xᵢ₊₁ − Xᵢ‖² is p, where p is quadratic.

        Up to a constant, or a bound from above, with equality at the X that is given.
        """
        return 0.0, 0.0, 0.0

    def scaled(self, c: float, power: float, p: float = 0.5, level: float = 1.0) -> Penalty:
        """The penalty q with q(X) = self(cᵖ X) / (level·c^power): that on the factor of V / c.

        When V is divided by c, the loss is divided by c^power; `level` is what the weights of
        entries are divided by.
        """
        if not self.degree:
            return self
        weight = self.weight / level * np.float64(c) ** (self.degree * p - power)  # pyright: ignore
        weight = float(weight)
        if not math.isfinite(weight):
            raise ValueError(
                f"{self} is too large relative to V of mean {c:g}: divide V by its mean"
            )
        return replace(self, weight=weight)  # pyright: ignore

    def fits(self, dtype: torch.dtype) -> bool:
        """Whether the squares that it leads to, in gradients and WᵀW, are finite there."""
        return getattr(self, "weight", 0.0) <= torch.finfo(dtype).max ** 0.5
