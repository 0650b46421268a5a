"""The last moves of a factor: their inner products, and proposals from them, in one pass each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from factormer import kernels
from factormer.kernels.threads import share


class Moves(NamedTuple):
    """The last moves of one factor: its own but the newest, and the solver's (see `Pooled`)."""

    P: Float[Tensor, "*b n r"]
    T: Float[Tensor, "*b n r"]
    U: Float[Tensor, "*b n r"]


class Track(NamedTuple):
    """One factor: where it is, where it was, the point y proposed to the solver, older moves."""

    X: Float[Tensor, "*b n r"]
    before: Float[Tensor, "*b n r"]
    y: Float[Tensor, "*b n r"]
    moves: Moves

    def products(self, real: Bool[Tensor, "*b n"] | None) -> Float[Tensor, "13 *b r"]:
        """The inner products in the order of `Pooled`; rows that pad a stack do not count."""
        if real is None and (fused := kernels.fused(self.X)):
            return fused.gather(*self[:3], *self.moves)
        dtype, plain = kernels.real(self.X.dtype), real is None and self._is_plain
        compiled = kernels.any_rank("gather", dtype) if plain else None
        if compiled is None:
            return products(self, real)
        n, r = self.X.shape
        sums, kernel = np.empty((compiled.N_PRODUCTS, r)), compiled.gather(dtype)
        arrays = [_by_components(F) for F in (*self[:3], *self.moves)]
        share(lambda a, b: kernel(*arrays, 0, n, sums, a, b), r, work=10 * n * r)
        return torch.from_numpy(sums).to(self.X.dtype)

    def proposal(
        self, amounts: Float[Tensor, "3 *b r"], moved: Bool[Tensor, "*b"]
    ) -> tuple[Tensor, Moves]:
        """X + d D + p P + s S for amounts (d, p, s), and the moves up to here.

        Where nothing moved it is X itself, and the moves are those before.
        """
        if fused := kernels.fused(self.X):
            y, *moves = fused.combine(amounts, moved, *self[:3], *self.moves)
            return y, Moves(*moves)
        dtype = kernels.real(self.X.dtype)
        compiled = kernels.any_rank("combine", dtype) if self._is_plain else None
        if compiled is None:
            return proposal(self, amounts, moved)
        if not moved:
            return self.X, self.moves
        n, r = self.X.shape
        given = [_by_components(F) for F in (*self[:3], self.moves.P)]
        made, kernel = [np.empty((r, n), dtype) for _ in range(3)], compiled.combine(dtype)
        weights = amounts.contiguous().numpy()
        share(lambda a, b: kernel(*given, *made, weights, a, b), r, work=5 * n * r)
        y, D, S = (torch.from_numpy(F).mT for F in made)
        return y, Moves(D, S, self.moves.T)

    @property
    def _is_plain(self) -> bool:
        return self.X.dim() == 2 and self.X.device.type == "cpu" and not torch.is_grad_enabled()


def products(track: Track, real: Bool[Tensor, "*b n"] | None) -> Float[Tensor, "13 *b r"]:
    """The twin of the compiled passes, for stacks and gradients."""
    X, before, y, (P, T, U) = track
    D, S = X - before, X - y

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim=-2)

    XX = dot(X, X)
    is_zero = (1e-8 * XX.sqrt()[..., None, :] >= X).to(X.dtype)  # up to rounding
    if real is None:
        zeros = is_zero.mean(dim=-2)
    else:
        weight = real.to(X.dtype)[..., None]
        zeros = (is_zero * weight).sum(dim=-2) / weight.sum(dim=-2).clamp(min=1)
    own = (XX, dot(X, D), dot(D, D), dot(D, P), dot(P, P), dot(S, D), dot(S, S))
    solver = (dot(S, T), dot(S, U), dot(T, T), dot(T, U), dot(U, U))
    return torch.stack([*own, *solver, zeros])


def proposal(
    track: Track, amounts: Float[Tensor, "3 *b r"], moved: Bool[Tensor, "*b"]
) -> tuple[Tensor, Moves]:
    """The twin of the compiled passes, for stacks and gradients."""
    X, before, y, (P, T, U) = track
    D, S = X - before, X - y
    d, p, s = amounts[..., None, :]
    pairs = ((X + (d * D + p * P + s * S), X), (D, P), (S, T), (T, U))
    y, *moves = (torch.where(moved[..., None, None], now, older) for now, older in pairs)
    return y, Moves(*moves)


def _by_components(F: Float[Tensor, "n r"]) -> np.ndarray:
    return F.mT.contiguous().numpy()
