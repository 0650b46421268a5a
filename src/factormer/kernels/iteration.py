"""What an iteration of extrapolated ADMM does on a GPU besides its products with V: five kernels.

In torch it is a hundred small kernels, which take longer than the products of 20000×10000 numbers
at rank 50. Sizes are arguments like any other; components are padded with zeros to a power of two.
Imported by `kernels.fused_iteration()` alone, where triton is present; the twin is
`accelerate.base.Judged.step` of `TraceAOADMM` and `Extrapolation`.
"""

# pyright: reportIndexIssue=false, reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from jaxtyping import Float
from torch import Tensor

from factormer.kernels.admm import jit

ROWS = 64  # of a program
_WARPS = 4
_PRECISION = "tf32x3"  # of the products of ADMM steps: nearly float32, on tensor cores
_TILE = 1024  # entries of a program that works entry by entry


class Left(NamedTuple):
    """What a half-step leaves behind: the error by rows, and the factor in halves for `data.split`.

    `misfit` has ⟨X WᵀW − 2F, X⟩, a number for each program. `halves` has X in bfloat16, rounded and
    the rest, side by side. Either may be empty.
    """

    misfit: Float[Tensor, " parts"]
    halves: Tensor

    @staticmethod
    def of(X: Float[Tensor, "n r"], wide: int, *, misfit: bool) -> Left:
        """Room for what X leaves, with halves of so many columns."""
        n, parts = len(X), triton.cdiv(len(X), ROWS) if misfit else 0
        return Left(
            torch.empty(parts, dtype=torch.float64, device=X.device),
            torch.zeros(n if wide else 0, 2 * wide, dtype=torch.bfloat16, device=X.device),
        )


@jit
def _store_halves(x, to, real, WIDE: tl.constexpr):
    high = x.to(tl.bfloat16)
    tl.store(to, high, mask=real)
    tl.store(to + WIDE, (x - high.to(tl.float32)).to(tl.bfloat16), mask=real)


@jit(do_not_specialize=["size", "r"])
def _halve(X, to, size, r, SIZE: tl.constexpr, WIDE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    real = at < size
    place = to + (at // r).to(tl.int64) * (2 * WIDE) + at % r
    _store_halves(tl.load(X + at, mask=real), place, real, WIDE)


def halve(X: Float[Tensor, "n r"], halves: Tensor) -> None:
    """Fill the halves of X; the twin is `data.split.Halves.of`."""
    size, wide = X.numel(), halves.shape[1] // 2
    _halve[(triton.cdiv(size, _TILE),)](X, halves, size, X.shape[1], SIZE=_TILE, WIDE=wide)


@jit(do_not_specialize=["r"])
def _ridge(G, share, rho_to, to, r, R: tl.constexpr):
    k, cols = tl.arange(0, R), tl.arange(0, R)
    at, inside = k[:, None] * r + cols[None, :], (k[:, None] < r) & (cols[None, :] < r)
    rho = share * tl.sum(tl.load(G + k * (r + 1), mask=k < r, other=0.0), axis=0) / r
    rho = tl.where(rho > 0, rho, 1.0)
    tl.store(rho_to, rho)
    more = tl.where(k[:, None] == cols[None, :], rho, 0.0)
    tl.store(to + at, tl.load(G + at, mask=inside) + more, mask=inside)


def ridge(G: Float[Tensor, "r r"], share: float) -> tuple[Float[Tensor, ""], Float[Tensor, "r r"]]:
    """ρ and G + ρI; the twin is `solvers.ao_admm.weight_of`."""
    r, rho, to = len(G), G.new_empty(()), torch.empty_like(G)
    _ridge[(1,)](G, float(share), rho, to, r, R=triton.next_power_of_2(r))
    return rho, to


@jit(do_not_specialize=["n", "r", "n_inner"])
def _half_step(
    F, F_low, inverse, WtW, X, U, rho, X_to, misfit, halves, n, r, n_inner,
    N: tl.constexpr, R: tl.constexpr, SPLIT: tl.constexpr, WIDE: tl.constexpr,
    MISFIT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    k, cols = tl.arange(0, R), tl.arange(0, R)
    rows = tl.program_id(0) * N + tl.arange(0, N)
    real = (rows[:, None] < n) & (cols[None, :] < r)
    at = rows[:, None] * r + cols[None, :]
    if SPLIT:
        first = F + rows[:, None].to(tl.int64) * (2 * SPLIT) + cols[None, :]
        low = tl.load(F_low + rows[:, None] * SPLIT + cols[None, :], mask=real, other=0.0)
        low = tl.load(first + SPLIT, mask=real, other=0.0) + low
        f = tl.load(first, mask=real, other=0.0) + low
    else:
        f = tl.load(F + at, mask=real, other=0.0)
    x = tl.load(X + at, mask=real, other=0.0)
    u = tl.load(U + at, mask=real, other=0.0)
    square, inside = k[:, None] * r + cols[None, :], (k[:, None] < r) & (cols[None, :] < r)
    inv = tl.load(inverse + square, mask=inside, other=0.0)
    weight = tl.load(rho)
    for _ in range(n_inner):
        free = tl.dot(f + weight * (x + u), inv, input_precision=PRECISION)
        x = tl.maximum(free - u, 0.0)
        u = u + x - free
    tl.store(X_to + at, x, mask=real)
    tl.store(U + at, u, mask=real)
    if MISFIT:
        gram = tl.load(WtW + square, mask=inside, other=0.0)
        fit = (tl.dot(x, gram, input_precision=PRECISION) - 2 * f) * x
        sums = tl.sum(fit, axis=1).to(tl.float64)  # of rows, whose rounding errors cancel
        tl.store(misfit + tl.program_id(0), tl.sum(sums, axis=0))
    if WIDE:
        to = halves + rows[:, None].to(tl.int64) * (2 * WIDE) + cols[None, :]
        _store_halves(x, to, real, WIDE)


def half_step(
    F: Sequence[Tensor],
    WtW: Float[Tensor, "r r"],
    inverse: Float[Tensor, "r r"],
    rho: Float[Tensor, ""],
    X: Float[Tensor, "n r"],
    U: Float[Tensor, "n r"],
    X_to: Float[Tensor, "n r"],
    left: Left,
    n_inner: int,
) -> None:
    """`n_inner` ADMM steps from X and U into X_to and U, and what they leave.

    F is VᵀW, or the two products of which `data.split` makes it.
    """
    n, r = X.shape
    split = F[1].shape[1] if len(F) > 1 else 0
    _half_step[(triton.cdiv(n, ROWS),)](
        F[0], F[-1], inverse, WtW, X, U, rho, X_to, *left, n, r, n_inner,
        N=ROWS, R=max(16, triton.next_power_of_2(r)), SPLIT=split, WIDE=left.halves.shape[1] // 2,
        MISFIT=len(left.misfit) > 0, PRECISION=_PRECISION, num_warps=_WARPS,
    )  # fmt: skip


@jit(do_not_specialize=["n_parts"])
def _judge(
    misfit, norm, error, plain, beta, last, bound, kept_to, beta_to, n_parts,
    eta, gamma, gamma_bound, SIZE: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, SIZE)
    sums = tl.zeros((SIZE,), tl.float64)
    for start in range(0, n_parts, SIZE):
        sums += tl.load(misfit + start + at, mask=start + at < n_parts, other=0.0)
    found = tl.load(norm) + tl.sum(sums, axis=0)
    before, was_plain = tl.load(error), tl.load(plain) != 0
    fell = found <= before  # false for NaN
    is_finite = tl.abs(found) < float("inf")
    kept = (fell == 0) & ((was_plain & is_finite) == 0)
    tl.store(error, tl.where(kept, before, found))
    tl.store(plain, kept.to(tl.uint8))
    tl.store(kept_to, kept.to(tl.int32))
    b, older, most = tl.load(beta), tl.load(last), tl.load(bound)
    tl.store(beta_to, b)
    tl.store(beta, tl.where(fell, tl.minimum(most, gamma * b), b / eta))
    tl.store(last, b)
    tl.store(bound, tl.where(fell, tl.minimum(gamma_bound * most, 1.0), older))


def judge(
    misfit: Float[Tensor, " parts"],
    norm: Float[Tensor, ""],
    error: Float[Tensor, ""],
    plain: Tensor,
    momentum: tuple[Tensor, ...],
    rates: tuple[float, float, float],
    kept: Tensor,
    beta: Tensor,
) -> None:
    """The error of the new point, whether the old one is kept, and what momentum learns of it.

    All in place; `kept` says it to `propose`, and `beta` gets the one that a proposal is to have.
    """
    _judge[(1,)](
        misfit, norm, error, plain.view(torch.uint8), *momentum, kept, beta, len(misfit), *rates,
        SIZE=1024,
    )  # fmt: skip


@jit(do_not_specialize=["size"])
def _propose(X, stepped, y_to, kept, beta, size, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    real = at < size
    before, after = tl.load(X + at, mask=real), tl.load(stepped + at, mask=real)
    after = tl.where(tl.load(kept) != 0, before, after)
    tl.store(X + at, after, mask=real)
    tl.store(y_to + at, after + tl.load(beta) * (after - before), mask=real)


def propose(
    X: Float[Tensor, "n r"],
    stepped: Float[Tensor, "n r"],
    y: Float[Tensor, "n r"],
    kept: Tensor,
    beta: Tensor,
) -> None:
    """X becomes the stepped point unless it is kept, and y the point beyond it."""
    size = X.numel()
    _propose[(triton.cdiv(size, _TILE),)](X, stepped, y, kept, beta, size, SIZE=_TILE)
