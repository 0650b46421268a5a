"""The singular values of V as evidence for its rank, for all ranks at once.

The noise that a component has to stand out from is that of the residual with random signs: flipping
the sign of each entry destroys what rows or columns have in common and keeps the size of every
entry, so noise may differ from entry to entry (Hong, Sheng and Dobriban, 2020).
Shapes: m rows, n columns, t ranks 0, 1, … that are left out of the residual, b copies.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data.svd import OVERSAMPLING, lowrank_svd
from factormer.select.ranks.view import View

FLOOR = 1e-5  # relative to the largest singular value: what counts as rounding
_SMALL = 200  # sides up to which singular vectors come from the matrix itself
_TINY = 1e-9  # relative to the largest: singular values that nothing is divided by
_FLIPS = 2  # random signs that the noise is averaged over
_STEPS, _BLOCK = 7, 2  # of the Krylov spaces in which norms are found
_SPLITS = 4  # blocks held out in bi-cross-validation
_HALVINGS = 2  # random halves in which singular vectors are looked for again
_HELD = 1 / 3  # share of the rows, and of the columns, in such a block


class Spectrum(NamedTuple):
    """Singular values with what is left and what noise there is beyond each rank 0, …, t−1.

    `noise[k]` is the norm of the residual of rank k with random signs, `values[k]` its norm: the
    singular value number k + 1. `tail[k]` is its squared Frobenius norm, `edge[k]` the norm of
    noise of that size, and `peaked[k]` says how much of the singular vectors number k + 1 is in few
    entries. `held[k]` is the mean squared error of rank k on blocks held out, relative to rank 0.
    """

    values: Float[Tensor, "t"]
    tail: Float[Tensor, "t"]
    noise: Float[Tensor, "t"]
    edge: Float[Tensor, "t"]
    peaked: Float[Tensor, "t"]
    held: Float[Tensor, "t"]


def spectrum(view: View, t: int, rng: torch.Generator) -> Spectrum:
    """The spectrum of a matrix, for residuals of ranks 0, …, t−1; t is at most min(m, n)."""
    if view.is_small:
        U, S, Z = decomposed(view.block, t)
        tail = S.square().flip(0).cumsum(0).flip(0)[:t]
    else:
        U, S, Z = lowrank_svd(view.compressed(2 * t + OVERSAMPLING, rng), t)
        tail = view.total - torch.cat([S.new_zeros(1), S.square().cumsum(0)])[:t]
    floor = FLOOR * S[0]
    tail = tail.clamp(min=floor**2)
    parts = (U[view.rows].float(), S.float(), Z[view.columns].float())
    noise = flipped_norm(leftovers(view.block.float(), *parts, t), rng)
    m, n = view.shape
    k = torch.arange(t, dtype=S.dtype)
    free = (m - k).clamp(min=1) * (n - k).clamp(min=1)
    edge = (tail / free).sqrt() * ((m - k).clamp(min=1).sqrt() + (n - k).clamp(min=1).sqrt())
    peaks = [len(F) * F[:, :t].double().pow(4).sum(0) for F in (U, Z)]
    return Spectrum(
        values=S[:t].clamp(min=floor),
        tail=tail,
        noise=(view.growth * noise).double().clamp(min=floor),
        edge=edge.clamp(min=floor),
        peaked=torch.maximum(*peaks).clamp(min=1.0),
        held=held_out(view.block, t, rng),
    )


def decomposed(
    X: Float[Tensor, "m n"], t: int
) -> tuple[Float[Tensor, "m k"], Float[Tensor, "q"], Float[Tensor, "n k"]]:
    """Singular vectors, the first t at least, and all singular values, in float64.

    From the smaller Gram matrix where X is not small: squares cost digits below `FLOOR` alone.
    """
    X = X.double()
    if min(X.shape) <= _SMALL:
        U, S, Zt = torch.linalg.svd(X, full_matrices=False)
        return U, S, Zt.mT
    if len(X) < X.shape[1]:
        Z, S, U = decomposed(X.mT, t)
        return U, S, Z
    squares, Z = torch.linalg.eigh(X.mT @ X)
    S = squares.flip(0).clamp(min=0).sqrt()
    Z = Z.flip(1)[:, :t]
    return X @ Z / S[:t].clamp(min=_TINY * S[0]), S, Z


def singular_values(X: Float[Tensor, "m n"]) -> Float[Tensor, "q"]:
    """All of them, those above `FLOOR` to five digits."""
    X = X.double() if len(X) >= X.shape[1] else X.double().mT
    return torch.linalg.eigvalsh(X.mT @ X).flip(0).clamp(min=0).sqrt()


def leftovers(
    X: Float[Tensor, "m n"],
    U: Float[Tensor, "m k"],
    S: Float[Tensor, "k"],
    Z: Float[Tensor, "n k"],
    t: int,
) -> Float[Tensor, "t m n"]:
    """X without its first 0, …, t−1 singular parts."""
    left = [X]
    for k in range(t - 1):
        left.append(left[-1] - torch.outer(U[:, k] * S[k], Z[:, k]))
    return torch.stack(left)


def flipped_norm(E: Float[Tensor, "b m n"], rng: torch.Generator) -> Float[Tensor, "b"]:
    """The spectral norm of each E with random signs, averaged over some draws of them."""
    found = torch.zeros(len(E), dtype=E.dtype)
    for _ in range(_FLIPS):
        signs = torch.randint(2, E.shape[1:], generator=rng).to(E) * 2 - 1
        found += norm(E * signs, rng)
    return found / _FLIPS


def norm(A: Float[Tensor, "b m n"], rng: torch.Generator) -> Float[Tensor, "b"]:
    """The spectral norm of each A, to about a percent: the best in a block Krylov space."""
    A = A if A.shape[-1] <= A.shape[-2] else A.mT
    Y = torch.randn(A.shape[-1], _BLOCK, generator=rng).to(A).expand(len(A), -1, -1)
    space = [Y]
    for _ in range(_STEPS):
        Y = A.mT @ (A @ Y)
        Y = Y / Y.norm(dim=-2, keepdim=True).clamp(min=torch.finfo(A.dtype).tiny)
        space.append(Y)
    Q = torch.linalg.qr(torch.cat(space[1:], -1)).Q
    B = (A @ Q).double()
    return torch.linalg.eigvalsh(B.mT @ B)[..., -1].clamp(min=0).sqrt().to(A)


def held_out(X: Float[Tensor, "m n"], t: int, rng: torch.Generator) -> Float[Tensor, "t"]:
    """The error of each rank on blocks held out, relative to that of rank 0.

    A block A of some rows and columns is predicted as B D⁺ C from the rest of its rows, B, the rest
    of its columns, C, and what is neither, D cut at the rank (Owen and Perry, 2009).
    """
    m, n = X.shape
    i, j = max(1, round(_HELD * m)), max(1, round(_HELD * n))
    total = torch.zeros(t, dtype=torch.float64)
    for _ in range(_SPLITS):
        rows, columns = (torch.randperm(size, generator=rng) for size in (m, n))
        Y = X[rows][:, columns].double()
        A, B, C, D = Y[:i, :j], Y[:i, j:], Y[i:, :j], Y[i:, j:]
        U, S, Z = decomposed(D, t)
        S = S[: U.shape[1]]
        S = torch.where(FLOOR * S[:1] < S, S, torch.inf)  # parts that are rounding predict nothing
        left, right = B @ Z / S, U.mT @ C  # (i, k), (k, j)
        errors, E = [A.square().sum()], A
        for k in range(min(t - 1, len(S))):
            E = E - torch.outer(left[:, k], right[k])
            errors.append(E.square().sum())
        errors += errors[-1:] * (t - len(errors))
        total += torch.stack(errors)
    return (total / total[0].clamp(min=torch.finfo(torch.float64).tiny)).clamp(min=FLOOR**2)


def found_again(X: Float[Tensor, "m n"], t: int, rng: torch.Generator) -> Float[Tensor, "t"]:
    """How much of each singular vector of one half of the data is found in the other half.

    Halves are of the columns, then of the rows. A vector is looked for among as many of the other
    half, and one more; 0 is what random vectors reach, 1 is all of it.
    """
    total, count = torch.zeros(t, dtype=torch.float64), 0
    for _ in range(_HALVINGS):
        for A in (X, X.mT):
            order = torch.randperm(A.shape[1], generator=rng)
            cut = A.shape[1] // 2
            (first, *_), (second, *_) = (
                decomposed(A[:, some], t + 1) for some in (order[:cut], order[cut:])
            )
            for one, other in ((first, second), (second, first)):
                total += _overlaps(one, other, t)
                count += 1
    return total / max(count, 1)


def _overlaps(one: Float[Tensor, "m k"], other: Float[Tensor, "m q"], t: int) -> Float[Tensor, "t"]:
    """The squared length of vector j of `one` within the first j + 1 of `other`, beyond chance."""
    m = len(one)
    squares = (other.mT @ one[:, :t]).square()[: t + 1].cumsum(0)  # (q, t)
    j = torch.arange(squares.shape[1])
    at = (j + 1).clamp(max=len(squares) - 1)
    chance = ((at + 1) / m).clamp(max=1 - 1e-3)
    share = ((squares[at, j] - chance) / (1 - chance)).clamp(-1, 1)
    return torch.cat([share, share.new_zeros(t - len(share))])
