"""The any-rank accelerator on a GPU: its passes over the factors, and what its network looks at.

In torch they are some two hundred launches an iteration; here five, and few are compiled: ranks and
sizes are arguments like any other. A grid's second axis is the batch.
Imported by `kernels.fused()` alone, where triton is present.
"""

# pyright: reportIndexIssue=false, reportPrivateImportUsage=false
from __future__ import annotations

import math

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from jaxtyping import Bool, Float
from torch import Tensor

from factormer.kernels.admm import jit

N_PRODUCTS, N_FEATURES, N_SHARED = 13, 15, 6
_WIDE = tl.constexpr(128)  # components that a program holds: one kernel for every rank
_ROWS, _TILE = 64, 1024  # rows that a program sums up, and entries that it holds


@jit(do_not_specialize=["n", "r"])
def _gather(X, before, y, P, T, U, out, n, r, n_rows: tl.constexpr, R: tl.constexpr):
    part, b = tl.program_id(0), tl.program_id(1)
    rows, cols = part * n_rows + tl.arange(0, n_rows), tl.arange(0, R)
    at = (b * n + rows[:, None]) * r + cols[None, :]
    real = (rows[:, None] < n) & (cols[None, :] < r)
    x = tl.load(X + at, mask=real, other=0.0)
    D = x - tl.load(before + at, mask=real, other=0.0)
    S = x - tl.load(y + at, mask=real, other=0.0)
    p = tl.load(P + at, mask=real, other=0.0)
    t = tl.load(T + at, mask=real, other=0.0)
    u = tl.load(U + at, mask=real, other=0.0)
    is_zero = tl.where(real & (x <= 0), 1.0, 0.0).to(x.dtype) / n
    to = out + (part * tl.num_programs(1) + b) * r + cols
    apart = tl.num_programs(0) * tl.num_programs(1) * r
    real_cols = cols < r
    tl.store(to, tl.sum(x * x, axis=0), mask=real_cols)
    tl.store(to + apart, tl.sum(x * D, axis=0), mask=real_cols)
    tl.store(to + 2 * apart, tl.sum(D * D, axis=0), mask=real_cols)
    tl.store(to + 3 * apart, tl.sum(D * p, axis=0), mask=real_cols)
    tl.store(to + 4 * apart, tl.sum(p * p, axis=0), mask=real_cols)
    tl.store(to + 5 * apart, tl.sum(S * D, axis=0), mask=real_cols)
    tl.store(to + 6 * apart, tl.sum(S * S, axis=0), mask=real_cols)
    tl.store(to + 7 * apart, tl.sum(S * t, axis=0), mask=real_cols)
    tl.store(to + 8 * apart, tl.sum(S * u, axis=0), mask=real_cols)
    tl.store(to + 9 * apart, tl.sum(t * t, axis=0), mask=real_cols)
    tl.store(to + 10 * apart, tl.sum(t * u, axis=0), mask=real_cols)
    tl.store(to + 11 * apart, tl.sum(u * u, axis=0), mask=real_cols)
    tl.store(to + 12 * apart, tl.sum(is_zero, axis=0), mask=real_cols)


def gather(*arrays: Float[Tensor, "*b n r"]) -> Float[Tensor, "13 *b r"]:
    """The inner products of X, before, y, P, T, U; the twin is `moves.products`, up to rounding.

    Entries of X that are zero up to rounding are taken for zero there, and here those that are.
    """
    X, *others = (array.contiguous() for array in arrays)
    *batch, n, r = X.shape
    b = math.prod(batch)
    R = triton.next_power_of_2(r)
    n_rows = min(_ROWS, max(1, _TILE // R))
    n_parts = triton.cdiv(n, n_rows)
    parts = X.new_empty(N_PRODUCTS, n_parts, b, r)
    _gather[(n_parts, b)](X, *others, parts, n, r, n_rows=n_rows, R=R)
    return parts.sum(dim=1).view(N_PRODUCTS, *batch, r)


@jit(do_not_specialize=["n", "r", "apart"])
def _combine(
    amounts, moved, X, before, y, P, T, U, y_to, P_to, T_to, U_to, n, r, apart, size: tl.constexpr
):
    b = tl.program_id(1)
    is_moved = tl.load(moved + b) != 0
    entry = tl.program_id(0) * size + tl.arange(0, size)
    real = entry < n * r
    at, weight = b * n * r + entry, amounts + b * r + entry % r
    x = tl.load(X + at, mask=real)
    last = x - tl.load(before + at, mask=real)
    own = x - tl.load(y + at, mask=real)
    older, solver = tl.load(P + at, mask=real), tl.load(T + at, mask=real)
    d, p = tl.load(weight, mask=real), tl.load(weight + apart, mask=real)
    s = tl.load(weight + 2 * apart, mask=real)
    step = d * last + p * older + s * own
    tl.store(y_to + at, tl.where(is_moved, x + step, x), mask=real)
    tl.store(P_to + at, tl.where(is_moved, last, older), mask=real)
    tl.store(T_to + at, tl.where(is_moved, own, solver), mask=real)
    oldest = tl.load(U + at, mask=real)
    tl.store(U_to + at, tl.where(is_moved, solver, oldest), mask=real)


def combine(
    amounts: Float[Tensor, "3 *b r"], moved: Bool[Tensor, "*b"], *arrays: Float[Tensor, "*b n r"]
) -> list[Float[Tensor, "*b n r"]]:
    """The proposal and the moves, of X, before, y, P, T, U; the twin is `moves.proposal`."""
    arrays = tuple(array.contiguous() for array in arrays)
    *batch, n, r = arrays[0].shape
    b = math.prod(batch)
    out = [torch.empty_like(arrays[0]) for _ in range(4)]
    grid = (triton.cdiv(n * r, 1024), b)
    flags = moved.to(torch.int32)
    _combine[grid](amounts.contiguous(), flags, *arrays, *out, n, r, b * r, size=1024)
    return out


@jit
def _bounded(x, bound):
    return tl.where(x == x, tl.minimum(tl.maximum(x, -bound), bound), 0.0)


@jit
def _depth_two(SS, TT, UU, ST, SU, TU):
    floor = 1e-6 * (SS + TT + UU) + 1e-30
    first, second = 1.003 * (SS + TT - 2 * ST) + floor, 1.003 * (SS + UU - 2 * SU) + floor
    both = SS - SU - ST + TU
    determinant = tl.maximum(first * second - both * both, 1e-30)
    a = ((SS - ST) * second - (SS - SU) * both) / determinant
    b = ((SS - SU) * first - (SS - ST) * both) / determinant
    return _bounded(-(a + b), 20.0), _bounded(-b, 20.0)


@jit
def _cosine(AB, AA, BB):
    return AB / tl.sqrt(AA * BB + 1e-28)


@jit
def _asinh(x):
    size = tl.log(tl.abs(x) + tl.sqrt(x * x + 1))
    return tl.where(x < 0, -size, size)


@jit
def _product(sums, k, apart, scale, r):
    """The inner products number k of one factor, (r), and the squared norms of its columns."""
    c = tl.arange(0, _WIDE)
    return (tl.load(sums + k * apart + c, mask=c < r, other=0.0) * scale).to(tl.float32)


@jit
def _put(nodes, column, feature, r):
    """Write one feature of all components."""
    c = tl.arange(0, _WIDE)
    tl.store(nodes + c * 36 + column, _bounded(feature, 10.0), mask=c < r)


@jit(do_not_specialize=["r", "n_b"])
def _look(sums, progress, nodes, steps, log_r, r, n_b):
    side, b, c = tl.program_id(0), tl.program_id(1), tl.arange(0, _WIDE)
    apart, nodes = n_b * 2 * r, nodes + b * r * 36
    of_W = tl.load(sums + b * 2 * r + c, mask=c < r, other=0.0)
    of_H = tl.load(sums + b * 2 * r + r + c, mask=c < r, other=0.0)
    strength, XX = of_W * of_H, tl.where(side == 0, of_W, of_H)
    whole = tl.sum(strength, axis=0)
    shares = (strength / tl.where(whole > 0, whole, 1.0)).to(tl.float32)
    sums += b * 2 * r + side * r
    moved = tl.load(sums + 2 * apart + c, mask=c < r, other=0.0)
    moved += tl.load(sums + 4 * apart + c, mask=c < r, other=0.0)
    moved += tl.load(sums + 6 * apart + c, mask=c < r, other=0.0)
    moved += tl.load(sums + 9 * apart + c, mask=c < r, other=0.0)
    moved += tl.load(sums + 11 * apart + c, mask=c < r, other=0.0)
    norm = tl.maximum(tl.maximum(XX, 1e-16 * tl.max(XX, axis=0)), 1e-6 * moved)
    scale = 1 / tl.where(norm > 0, norm, 1.0)
    XD, DD = _product(sums, 1, apart, scale, r), _product(sums, 2, apart, scale, r)
    DP, PP = _product(sums, 3, apart, scale, r), _product(sums, 4, apart, scale, r)
    SD, SS = _product(sums, 5, apart, scale, r), _product(sums, 6, apart, scale, r)
    ST, SU = _product(sums, 7, apart, scale, r), _product(sums, 8, apart, scale, r)
    TT, TU = _product(sums, 9, apart, scale, r), _product(sums, 10, apart, scale, r)
    UU, zeros = _product(sums, 11, apart, scale, r), _product(sums, 12, apart, 1.0, r)
    same = 0 * shares  # added to a number, it is the same number for all components
    D_all, P_all = _depth_two(
        tl.sum(SS * shares, axis=0) + same,
        tl.sum(TT * shares, axis=0) + same,
        tl.sum(UU * shares, axis=0) + same,
        tl.sum(ST * shares, axis=0) + same,
        tl.sum(SU * shares, axis=0) + same,
        tl.sum(TU * shares, axis=0) + same,
    )
    D_one, P_one = _depth_two(SS, TT, UU, ST, SU, TU)
    steps += (b * 2 + side) * r + c
    tl.store(steps, D_all, mask=c < r)
    tl.store(steps + apart, P_all, mask=c < r)
    tl.store(steps + 2 * apart, D_one, mask=c < r)
    tl.store(steps + 3 * apart, P_one, mask=c < r)
    overall, floor, at = tl.sum(DD * shares, axis=0) + same, 1e-14, side * 15
    log_D, log_P, log_S = tl.log(DD + floor), tl.log(PP + floor), tl.log(SS + floor)
    log_T, log_U = tl.log(TT + floor), tl.log(UU + floor)
    _put(nodes, at, _cosine(XD, 1 + same, DD), r)
    _put(nodes, at + 1, _cosine(SD, SS, DD), r)
    _put(nodes, at + 2, _cosine(DP, DD, PP), r)
    _put(nodes, at + 3, _cosine(ST, SS, TT), r)
    _put(nodes, at + 4, log_D / 8 + 1, r)
    _put(nodes, at + 5, tl.log(overall + floor) / 8 + 1, r)
    _put(nodes, at + 6, _bounded(log_D - log_P, 12.0) / 4, r)
    _put(nodes, at + 7, _bounded(log_S - log_D, 12.0) / 4, r)
    _put(nodes, at + 8, _bounded(log_S - log_T, 12.0) / 4, r)
    _put(nodes, at + 9, _bounded(log_T - log_U, 12.0) / 4, r)
    _put(nodes, at + 10, zeros, r)
    _put(nodes, at + 11, _asinh(D_all) / 2, r)
    _put(nodes, at + 12, _asinh(P_all) / 2, r)
    _put(nodes, at + 13, _asinh(D_one) / 2, r)
    _put(nodes, at + 14, _asinh(P_one) / 2, r)
    if side == 0:
        strong = tl.log(tl.maximum(strength, 1e-12 * tl.max(strength, axis=0))) / 2
        strong = tl.where(c < r, strong, 0.0).to(tl.float32)
        _put(nodes, 30, _bounded(strong - tl.sum(strong, axis=0) / r, 6.0) / 2, r)
        beta, age = tl.load(progress + b), tl.load(progress + n_b + b)
        t, strikes = tl.load(progress + 2 * n_b + b), tl.load(progress + 3 * n_b + b)
        _put(nodes, 31, same + tl.log(1 + age) / 2, r)
        _put(nodes, 32, same + tl.log(1 + t) / 3, r)
        _put(nodes, 33, same + log_r / 3, r)
        _put(nodes, 34, same + strikes / 3, r)
        _put(nodes, 35, same + beta, r)


@jit(do_not_specialize=["r"])
def _edges(gram, edges, r):
    c, b, e = tl.program_id(0), tl.program_id(1), tl.arange(0, _WIDE)
    product, W, H = tl.full((_WIDE,), 1.0, tl.float32), gram + b * 2 * r * r, edges + b * 3 * r * r
    for side in tl.static_range(2):
        G = W + side * r * r
        squares = tl.load(G + e * r + e, mask=e < r, other=0.0)
        squares = tl.maximum(squares, 1e-16 * tl.max(squares, axis=0))
        norms = tl.sqrt(tl.where(squares > 0, squares, 1.0))
        own = tl.sum(tl.where(e == c, norms, 0.0), axis=0)
        C = (tl.load(G + c * r + e, mask=e < r, other=0.0) / norms / own).to(tl.float32)
        C = tl.where((e == c) | (C != C), 0.0, C)
        product *= C
        tl.store(H + (side * r + c) * r + e, C / (1 + tl.sum(tl.abs(C), axis=0)), mask=e < r)
    product = product / (1 + tl.sum(tl.abs(product), axis=0))
    tl.store(H + (2 * r + c) * r + e, product, mask=e < r)


def look(
    sums: Float[Tensor, "13 *b 2 r"],
    gram: Float[Tensor, "*b 2 r r"],
    progress: Float[Tensor, "4 *b"],
) -> tuple[Float[Tensor, "*b r k"], Float[Tensor, "*b 3 r r"], Float[Tensor, "4 *b 2 r"]]:
    """Nodes, edges, and Anderson steps; the twin is `AnyRankNetwork.look`."""
    _, *batch, _, r = sums.shape
    b, single = math.prod(batch), {"dtype": torch.float32, "device": sums.device}
    nodes = torch.empty(*batch, r, 2 * N_FEATURES + N_SHARED, **single)
    steps, edges = torch.empty(4, *batch, 2, r, **single), torch.empty(*batch, 3, r, r, **single)
    sums, gram, progress = sums.contiguous(), gram.contiguous(), progress.contiguous()
    _look[(2, b)](sums, progress, nodes, steps, math.log(r), r, b)
    _edges[(r, b)](gram, edges, r)
    return nodes, edges, steps


@jit(do_not_specialize=["r", "n_b"])
def _choose(out, steps, progress, amounts, patience, r, n_b):
    side, b, c = tl.program_id(0), tl.program_id(1), tl.arange(0, _WIDE)
    at, apart = (b * 2 + side) * r + c, n_b * 2 * r
    beta, trusted = tl.load(progress + b), tl.load(progress + 3 * n_b + b) < patience
    out += (b * r + c) * 12 + side * 6
    more = tl.where(trusted, _bounded(tl.load(out, mask=c < r, other=0.0), 4.0), 0.0)
    D = tl.where(trusted, _bounded(tl.load(out + 1, mask=c < r, other=0.0), 4.0), 0.0)
    P = tl.where(trusted, _bounded(tl.load(out + 2, mask=c < r, other=0.0), 4.0), 0.0)
    S = tl.where(trusted, _bounded(tl.load(out + 3, mask=c < r, other=0.0), 4.0), 0.0)
    over_all = tl.where(trusted, _bounded(tl.load(out + 4, mask=c < r, other=0.0), 4.0), 0.0)
    by_one = tl.where(trusted, _bounded(tl.load(out + 5, mask=c < r, other=0.0), 4.0), 0.0)
    D_all = tl.load(steps + at, mask=c < r, other=0.0)
    P_all = tl.load(steps + apart + at, mask=c < r, other=0.0)
    D_one = tl.load(steps + 2 * apart + at, mask=c < r, other=0.0)
    P_one = tl.load(steps + 3 * apart + at, mask=c < r, other=0.0)
    by_D = beta + beta * more + D + over_all * D_all + by_one * D_one
    tl.store(amounts + at, by_D, mask=c < r)
    tl.store(amounts + apart + at, P + over_all * P_all + by_one * P_one, mask=c < r)
    tl.store(amounts + 2 * apart + at, S, mask=c < r)


def choose(
    out: Float[Tensor, "*b r k"],
    steps: Float[Tensor, "4 *b 2 r"],
    progress: Float[Tensor, "4 *b"],
    patience: float,
) -> Float[Tensor, "3 *b 2 r"]:
    """Amounts of D, P and S from what the network says; the twin is in `AnyRank.amounts`."""
    *batch, r, _ = out.shape
    amounts, b = progress.new_empty(3, *batch, 2, r), math.prod(batch)
    out, progress = out.float().contiguous(), progress.contiguous()
    _choose[(2, b)](out, steps, progress, amounts, patience, r, b)
    return amounts
