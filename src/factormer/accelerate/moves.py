"""The last moves of a factor: their inner products, and proposals from them, in one pass each."""

from __future__ import annotations

from types import ModuleType
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
        compiled = Compiled.of(self) if real is None else None
        if compiled is None:
            return products(self, real)
        sums = np.empty((compiled.kernels.N_PRODUCTS, self.X.shape[1]))
        compiled.products(sums)
        return torch.from_numpy(sums).to(self.X.dtype)

    def proposal(
        self, amounts: Float[Tensor, "3 *b r"], moved: Bool[Tensor, "*b"]
    ) -> tuple[Tensor, Moves]:
        """X + d D + p P + s S for amounts (d, p, s), and the moves up to here.

        Where nothing moved it is X itself, and the moves are those before.
        """
        compiled = Compiled.of(self)
        if compiled is None:
            return proposal(self, amounts, moved)
        if not moved:
            return self.X, self.moves
        y, moves = compiled.proposal(amounts.contiguous().numpy(), self.moves)
        return self.laid_out(y), moves

    def laid_out(self, y: Float[Tensor, "n r"]) -> Float[Tensor, "n r"]:
        """Y by rows if X is, since a solver that works by rows is slower otherwise."""
        return y.contiguous() if self.X.is_contiguous() else y


class Compiled(NamedTuple):
    """The factors of a track by components, for compiled passes over them."""

    kernels: ModuleType
    X: np.ndarray
    before: np.ndarray
    y: np.ndarray
    P: np.ndarray
    T: np.ndarray
    U: np.ndarray

    @staticmethod
    def of(track: Track) -> Compiled | None:
        """None for a stack, for gradients, and where nothing is compiled."""
        X = track.X
        if X.dim() != 2 or X.device.type != "cpu" or torch.is_grad_enabled():
            return None
        dtype = kernels.real(X.dtype)
        compiled = kernels.any_rank("gather", dtype) and kernels.any_rank("combine", dtype)
        if compiled is None:
            return None
        return Compiled(compiled, *(_by_components(F) for F in (*track[:3], *track.moves)))

    def products(self, sums: np.ndarray) -> None:
        """Put the inner products into `sums` (13, r), in float64; the twin is `products`."""
        (r, n), kernel = self.X.shape, self.kernels.gather(self.X.dtype)
        share(lambda a, b: kernel(*self[1:], 0, n, sums, a, b), r, work=10 * n * r)

    def proposal(self, amounts: np.ndarray, moves: Moves) -> tuple[Tensor, Moves]:
        """X + d D + p P + s S, and the moves up to there; the twin is `proposal`."""
        (r, n), dtype = self.X.shape, self.X.dtype
        given, kernel = (self.X, self.before, self.y, self.P), self.kernels.combine(dtype)
        made = [np.empty((r, n), dtype) for _ in range(3)]
        share(lambda a, b: kernel(*given, *made, amounts, a, b), r, work=5 * n * r)
        y, D, S = (torch.from_numpy(F).mT for F in made)
        return y, Moves(D, S, moves.T)


def products(track: Track, real: Bool[Tensor, "*b n"] | None) -> Float[Tensor, "13 *b r"]:
    """The twin of the compiled passes, for GPUs, stacks and gradients."""
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
    """The twin of the compiled passes, for GPUs, stacks and gradients."""
    X, before, y, (P, T, U) = track
    D, S = X - before, X - y
    d, p, s = amounts[..., None, :]
    pairs = ((X + (d * D + p * P + s * S), X), (D, P), (S, T), (T, U))
    y, *moves = (torch.where(moved[..., None, None], now, older) for now, older in pairs)
    return y, Moves(*moves)


def _by_components(F: Float[Tensor, "n r"]) -> np.ndarray:
    return np.ascontiguousarray(F.numpy().T)
