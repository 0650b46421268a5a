"""What is asked of one factor beyond being nonnegative: small values, and known columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Terms:
    """The penalty l1·‖F‖₁ + ½·l2·‖F‖² on a factor F ≥ 0, and the columns of it that are `fixed`.

    In the normal equations of a half-step l1 is taken from VᵀW and l2 added to the diagonal of WᵀW.
    """

    l1: float = 0.0
    l2: float = 0.0
    fixed: Bool[Tensor, " r"] | None = None

    @property
    def is_penalty(self) -> bool:
        """Whether the loss has a term for this factor."""
        return bool(self.l1 or self.l2)

    def penalty(self, F: Float[Tensor, "*b m r"]) -> Float[Tensor, "*b"]:
        """l1·‖F‖₁ + ½·l2·‖F‖², in float64."""
        F = F.double()
        return self.l1 * F.sum(dim=(-2, -1)) + self.l2 / 2 * F.square().sum(dim=(-2, -1))

    def held(
        self, F: Float[Tensor, "*b m r"], before: Float[Tensor, "*b m r"]
    ) -> Float[Tensor, "*b m r"]:
        """F with its fixed columns as they were `before`."""
        return F if self.fixed is None else torch.where(self.fixed, before, F)


class Asked(NamedTuple):
    """The terms of both factors."""

    W: Terms
    H: Terms

    @property
    def has_no_penalty(self) -> bool:
        """Whether no factor is penalised; columns may be fixed."""
        return not (self.W.is_penalty or self.H.is_penalty)

    def swap(self) -> Asked:
        """Those of the transposed problem."""
        return self if self is NOTHING else Asked(self.H, self.W)

    def scaled(self, c: float) -> Asked:
        """Those of the problem c·V, whose minimiser is √c·(W, H).

        The squared error grows by c², ‖F‖₁ by √c and ‖F‖² by c: so l1 has to grow by c^(3/2) and l2
        by c for the sum to grow as a whole.
        """
        return Asked(*(Terms(c**1.5 * t.l1, c * t.l2, t.fixed) for t in self))


NOTHING = Asked(Terms(), Terms())
