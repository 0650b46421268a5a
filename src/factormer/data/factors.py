"""Points of the factorization problem.  Shapes: m rows, n columns, r rank, *b batch axes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Factors(NamedTuple):
    """A point (W, H); the approximation it stands for is W Hᵀ (eq. 1)."""

    W: Float[Tensor, "*b m r"]
    H: Float[Tensor, "*b n r"]

    def swap(self) -> Factors:
        """Return the point as one of the transposed problem Vᵀ ≈ H Wᵀ (eq. 7)."""
        return Factors(self.H, self.W)

    def scale(self, c: float | Float[Tensor, "*b"]) -> Factors:
        """The point √c·(W, H), whose product is c·W Hᵀ."""
        root = torch.as_tensor(c, dtype=self.W.dtype, device=self.W.device).sqrt()[..., None, None]
        return Factors(root * self.W, root * self.H)


def where(mask: Bool[Tensor, "*b"], a: Factors, b: Factors) -> Factors:
    """Take each member of the batch from `a` where `mask` holds, else from `b`."""
    if mask.dim() == 0 and not mask.is_cuda:  # a GPU is not waited for
        return a if bool(mask) else b
    mask = mask[..., None, None]
    return Factors(torch.where(mask, a.W, b.W), torch.where(mask, a.H, b.H))


def every(mask: Bool[Tensor, "*b"]) -> bool:
    """Whether it holds for each member of the batch; to reduce a single number would be slow."""
    return bool(mask if mask.dim() == 0 else mask.all())


def some(mask: Bool[Tensor, "*b"]) -> bool:
    """Whether it holds for a member of the batch."""
    return bool(mask if mask.dim() == 0 else mask.any())


def concatenate(a: Factors, b: Factors) -> Factors:
    """Put two points side by side, [W_a, W_b] and [H_a, H_b] (alg. 2)."""
    return Factors(torch.cat([a.W, b.W], dim=-1), torch.cat([a.H, b.H], dim=-1))
