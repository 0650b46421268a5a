"""A loss is a class with a value, a slope, a curvature, and a rule for scaling."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

Each = Float[Tensor, "..."]


class Loss(ABC):
    """d(v, y) of an entry v of V and its fit y: never negative, and 0 where y = v.

    To add a loss, write one subclass (a frozen dataclass, say) with value, slope and curvature;
    no solver changes. The rest has defaults that are right for every d that is convex in y; a
    subclass may replace them by something faster. All work entry by entry.
    """

    @abstractmethod
    def __call__(self, v: Each, y: Each) -> Each:
        """d(v, y)."""

    @abstractmethod
    def slope(self, v: Each, y: Each) -> Each:
        """∂d/∂y."""

    @abstractmethod
    def curvature(self, v: Each, y: Each) -> Each:
        """∂²d/∂y²."""

    @property
    def degree(self) -> float:
        """d(c·v, c·y) = c^degree · d′(v, y), where d′ is `scaled(c)`."""
        return 2.0

    @property
    def exponent(self) -> float:
        """The power of a multiplicative update that never raises d."""
        return 1.0

    @property
    def title(self) -> str:
        """Return the name that people know the sum of d by."""
        return "loss"

    @property
    def is_quadratic(self) -> bool:
        """Whether d = ½(v − y)², so that the normal equations suffice."""
        return False

    @property
    def is_for_counts(self) -> bool:
        """Whether entries vary like counts, so that their square roots all vary equally."""
        return False

    @property
    def has_pole(self) -> bool:
        """Whether d(0, y) is infinite, so that V may have no zeros."""
        return False

    @property
    def has_unit(self) -> bool:
        """Whether d has parameters in the unit of V, which `scaled` changes."""
        return False

    @property
    def zero_slope(self) -> float | None:
        """The s such that `parts` are (a, s), with a = 0 where v = 0; None where there is none.

        Then d(0, y) = s·y, and the zeros of a sparse V need not be visited one by one.
        """
        return None

    @property
    def kernel_beta(self) -> float | None:
        """The β by which compiled kernels know d, or None."""
        return None

    def scaled(self, c: float) -> Loss:
        """The loss d′ on V / c, with d(v, y) = c^degree · d′(v/c, y/c)."""
        return self

    def parts(self, v: Each, y: Each) -> tuple[Each, Each]:
        """Nonnegative (a, b) with slope b − a: what pulls y up, and what holds it down.

        Here (k·v, k·y), where k is the slope over y − v, and where these meet the curvature.
        """
        gap = y - v
        apart = gap.abs() > torch.finfo(y.dtype).eps ** 0.5 * (y.abs() + v.abs())
        ratio = self.slope(v, y) / torch.where(apart, gap, torch.ones_like(gap))
        k = torch.where(apart, ratio, self.curvature(v, y))
        return k * v, k * y

    def prox(
        self,
        v: Each,
        x: Each,
        weight: Each | float,
        *,
        near: Each | None = None,
        n_iter: int = 60,
    ) -> Each:
        """The y > 0 that minimises weight·d(v, y) + ½(y − x)².

        It is between v and x. Newton's method searches there, from the larger or from a guess
        `near` it; steps that would leave are replaced by bisection.
        """
        low, high = floored(torch.minimum(x, v)), floored(torch.maximum(x, v))
        y = high if near is None else torch.minimum(torch.maximum(near, low), high)
        blur = 16 * torch.finfo(x.dtype).eps * (v + x.abs())
        for _ in range(n_iter):
            before, slope = y, weight * self.slope(v, y) + y - x
            low, high = torch.where(slope < 0, y, low), torch.where(slope > 0, y, high)
            newton = y - slope / (1 + weight * self.curvature(v, y))
            inside = (newton >= low) & (newton <= high)
            y = torch.where(inside, newton, (low + high) / 2)
            if bool(((y - before).abs() <= blur).all()):
                break
        return y


def floored(y: Each) -> Each:
    """At least the smallest number whose reciprocal, and a little more, is still finite."""
    return y.clamp(min=1e4 * torch.finfo(y.dtype).tiny)
