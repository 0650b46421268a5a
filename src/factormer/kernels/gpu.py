"""The any-rank accelerator on a GPU: its passes over the factors and its network, a kernel each.

In torch they are some three hundred launches an iteration. A grid's second axis is the batch.
Imported by `kernels.fused()` alone, where triton is present.
"""

# pyright: reportIndexIssue=false, reportPrivateImportUsage=false
from __future__ import annotations

import math

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from jaxtyping import Float
from torch import Tensor

from factormer.kernels.admm import jit

N_PRODUCTS, N_FEATURES, N_SHARED, N_OUT = 13, 15, 6, 6
_ROWS, _TILE = 64, 4096  # rows that a program sums up, and entries that it has at hand


@jit
def _gather(X, before, y, P, T, U, norms, out, n, r, n_rows: tl.constexpr, R: tl.constexpr):
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
    norm = tl.load(norms + b * r + cols, mask=cols < r, other=0.0)
    is_zero = tl.where(real & (x <= 1e-8 * norm[None, :]), 1.0, 0.0).to(x.dtype) / n
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
    """The inner products of X, before, y, P, T and U; the twin is `accelerate.moves.products`."""
    X, *others = (array.contiguous() for array in arrays)
    *batch, n, r = X.shape
    b = math.prod(batch)
    R = triton.next_power_of_2(r)
    n_rows = min(_ROWS, max(1, _TILE // R))
    n_parts = triton.cdiv(n, n_rows)
    parts = X.new_empty(N_PRODUCTS, n_parts, b, r)
    norms = torch.linalg.vector_norm(X, dim=-2)
    _gather[(n_parts, b)](X, *others, norms, parts, n, r, n_rows=n_rows, R=R)
    return parts.sum(dim=1).view(N_PRODUCTS, *batch, r)


@jit
def _combine(X, before, y, P, amounts, proposed, D, S, n, r, apart, size: tl.constexpr):
    b = tl.program_id(1)
    entry = tl.program_id(0) * size + tl.arange(0, size)
    real = entry < n * r
    at, weight = b * n * r + entry, amounts + b * r + entry % r
    x = tl.load(X + at, mask=real)
    last = x - tl.load(before + at, mask=real)
    own = x - tl.load(y + at, mask=real)
    older = tl.load(P + at, mask=real)
    d, p = tl.load(weight, mask=real), tl.load(weight + apart, mask=real)
    s = tl.load(weight + 2 * apart, mask=real)
    tl.store(proposed + at, x + (d * last + p * older + s * own), mask=real)
    tl.store(D + at, last, mask=real)
    tl.store(S + at, own, mask=real)


def combine(
    amounts: Float[Tensor, "3 *b r"], *arrays: Float[Tensor, "*b n r"]
) -> list[Float[Tensor, "*b n r"]]:
    """The proposal, D and S, from X, before, y and P; the twin is `accelerate.moves.proposal`."""
    arrays = tuple(array.contiguous() for array in arrays)
    *batch, n, r = arrays[0].shape
    b = math.prod(batch)
    out = [torch.empty_like(arrays[0]) for _ in range(3)]
    grid = (triton.cdiv(n * r, 1024), b)
    _combine[grid](*arrays, amounts.contiguous(), *out, n, r, b * r, size=1024)
    return out


@jit
def _bounded(x, bound):
    return tl.where(x == x, tl.minimum(tl.maximum(x, -bound), bound), 0.0)


@jit
def _single(x):
    return x.to(tl.float32)


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
def _gate(x):
    return x * (0.5 + 0.5 * x / (1 + tl.abs(x)))


@jit
def _heard(h, feature, weights, column, d, n_in, D: tl.constexpr):
    """The nodes h (R, D), and what one more feature (R) adds to them."""
    rows = tl.arange(0, D)
    w = tl.load(weights + rows * n_in + column, mask=rows < d, other=0.0)
    return h + _single(_bounded(feature, 10.0))[:, None] * w[None, :]


@jit
def _side(h, sums, shares, weights, column, b, n_b, r, d, n_in, R: tl.constexpr, D: tl.constexpr):
    """What the features of one factor add to the nodes, and its Anderson steps."""
    c = tl.arange(0, R)
    at, apart = sums + b * 2 * r + c, n_b * 2 * r
    XX = tl.load(at, mask=c < r, other=0.0)
    XD = tl.load(at + apart, mask=c < r, other=0.0)
    DD = tl.load(at + 2 * apart, mask=c < r, other=0.0)
    DP = tl.load(at + 3 * apart, mask=c < r, other=0.0)
    PP = tl.load(at + 4 * apart, mask=c < r, other=0.0)
    SD = tl.load(at + 5 * apart, mask=c < r, other=0.0)
    SS = tl.load(at + 6 * apart, mask=c < r, other=0.0)
    ST = tl.load(at + 7 * apart, mask=c < r, other=0.0)
    SU = tl.load(at + 8 * apart, mask=c < r, other=0.0)
    TT = tl.load(at + 9 * apart, mask=c < r, other=0.0)
    TU = tl.load(at + 10 * apart, mask=c < r, other=0.0)
    UU = tl.load(at + 11 * apart, mask=c < r, other=0.0)
    zeros = tl.load(at + 12 * apart, mask=c < r, other=0.0)
    norm = tl.maximum(XX, 1e-16 * tl.max(XX, axis=0))
    norm = tl.maximum(norm, 1e-6 * (DD + PP + SS + TT + UU))
    scale = 1 / tl.where(norm > 0, norm, 1.0)
    XD, DD, DP = _single(XD * scale), _single(DD * scale), _single(DP * scale)
    PP, SD, SS = _single(PP * scale), _single(SD * scale), _single(SS * scale)
    ST, SU, TT = _single(ST * scale), _single(SU * scale), _single(TT * scale)
    TU, UU = _single(TU * scale), _single(UU * scale)
    all_SS, all_TT = tl.sum(SS * shares, axis=0), tl.sum(TT * shares, axis=0)
    all_UU, all_ST = tl.sum(UU * shares, axis=0), tl.sum(ST * shares, axis=0)
    all_SU, all_TU = tl.sum(SU * shares, axis=0), tl.sum(TU * shares, axis=0)
    whole = 0 * SS  # one number for all components
    D_all, P_all = _depth_two(
        all_SS + whole, all_TT + whole, all_UU + whole,
        all_ST + whole, all_SU + whole, all_TU + whole,
    )  # fmt: skip
    D_one, P_one = _depth_two(SS, TT, UU, ST, SU, TU)
    overall = tl.sum(DD * shares, axis=0) + whole
    floor = 1e-14
    log_D, log_P, log_S = tl.log(DD + floor), tl.log(PP + floor), tl.log(SS + floor)
    log_T, log_U = tl.log(TT + floor), tl.log(UU + floor)
    h = _heard(h, _cosine(XD, 1 + whole, DD), weights, column, d, n_in, D)
    h = _heard(h, _cosine(SD, SS, DD), weights, column + 1, d, n_in, D)
    h = _heard(h, _cosine(DP, DD, PP), weights, column + 2, d, n_in, D)
    h = _heard(h, _cosine(ST, SS, TT), weights, column + 3, d, n_in, D)
    h = _heard(h, log_D / 8 + 1, weights, column + 4, d, n_in, D)
    h = _heard(h, tl.log(overall + floor) / 8 + 1, weights, column + 5, d, n_in, D)
    h = _heard(h, _bounded(log_D - log_P, 12.0) / 4, weights, column + 6, d, n_in, D)
    h = _heard(h, _bounded(log_S - log_D, 12.0) / 4, weights, column + 7, d, n_in, D)
    h = _heard(h, _bounded(log_S - log_T, 12.0) / 4, weights, column + 8, d, n_in, D)
    h = _heard(h, _bounded(log_T - log_U, 12.0) / 4, weights, column + 9, d, n_in, D)
    h = _heard(h, zeros, weights, column + 10, d, n_in, D)
    h = _heard(h, _asinh(D_all) / 2, weights, column + 11, d, n_in, D)
    h = _heard(h, _asinh(P_all) / 2, weights, column + 12, d, n_in, D)
    h = _heard(h, _asinh(D_one) / 2, weights, column + 13, d, n_in, D)
    h = _heard(h, _asinh(P_one) / 2, weights, column + 14, d, n_in, D)
    return h, D_all, P_all, D_one, P_one


@jit
def _cosines(gram, side, b, r, R: tl.constexpr):
    """Cosines between the columns of a factor, zero on the diagonal and beyond r."""
    c = tl.arange(0, R)
    G = gram + (b * 2 + side) * r * r
    real = (c[:, None] < r) & (c[None, :] < r)
    entries = tl.load(G + c[:, None] * r + c[None, :], mask=real, other=0.0)
    squares = tl.load(G + c * r + c, mask=c < r, other=0.0)
    squares = tl.maximum(squares, 1e-16 * tl.max(squares, axis=0))
    norm = tl.sqrt(tl.where(squares > 0, squares, 1.0))
    cosines = _single(entries / norm[:, None] / norm[None, :])
    return tl.where(c[:, None] == c[None, :], 0.0, cosines)


@jit
def _listen(C, message, weights, at, d, k, n_in, D: tl.constexpr, K: tl.constexpr):
    """What messages say that come along the edges C, each row of them beside its sum."""
    C = C / (1 + tl.sum(tl.abs(C), axis=1))[:, None]
    C = tl.where(C == C, C, 0.0)
    return tl.dot(
        tl.dot(C, message, input_precision="ieee"),
        _matrix(weights, at, k, d, n_in, K, D),
        input_precision="ieee",
    )


@jit
def _matrix(weights, at, n_in, n_out, apart, n: tl.constexpr, o: tl.constexpr):
    """A matrix of weights, stored (n_out, apart), as (n, o): the columns from `at`, transposed."""
    rows, cols = tl.arange(0, n), tl.arange(0, o)
    real = (rows[:, None] < n_in) & (cols[None, :] < n_out)
    return tl.load(weights + at + cols[None, :] * apart + rows[:, None], mask=real, other=0.0)


@jit
def _column(out, j, n: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, n)[None, :] == j, out, 0.0), axis=1)


@jit
def _mix(
    sums, gram, progress, weights, amounts, patience, log_r, r, d, k,
    n_layers: tl.constexpr, R: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    b, n_b, c = tl.program_id(0), tl.num_programs(0), tl.arange(0, R)
    beta, age = tl.load(progress + b), tl.load(progress + n_b + b)
    t, strikes = tl.load(progress + 2 * n_b + b), tl.load(progress + 3 * n_b + b)
    strength = tl.load(sums + b * 2 * r + c, mask=c < r, other=0.0)
    strength *= tl.load(sums + b * 2 * r + r + c, mask=c < r, other=0.0)
    whole = tl.sum(strength, axis=0)
    shares = _single(strength / tl.where(whole > 0, whole, 1.0))
    n_in: tl.constexpr = 36
    o = tl.arange(0, D)
    bias = tl.load(weights + d * n_in + o, mask=o < d, other=0.0)
    h = tl.zeros((R, D), tl.float32) + bias[None, :]
    h, D_all_W, P_all_W, D_one_W, P_one_W = _side(
        h, sums, shares, weights, 0, b, n_b, r, d, n_in, R, D
    )
    h, D_all_H, P_all_H, D_one_H, P_one_H = _side(
        h, sums + r, shares, weights, 15, b, n_b, r, d, n_in, R, D
    )
    strong = tl.log(tl.maximum(strength, 1e-12 * tl.max(strength, axis=0))) / 2
    strong = tl.where(c < r, strong, 0.0)
    strong = _bounded(strong - tl.sum(strong, axis=0) / r, 6.0) / 2
    same = 0 * shares  # one number for all components
    h = _heard(h, strong, weights, 30, d, n_in, D)
    h = _heard(h, same + tl.log(1 + age) / 2, weights, 31, d, n_in, D)
    h = _heard(h, same + tl.log(1 + t) / 3, weights, 32, d, n_in, D)
    h = _heard(h, same + log_r / 3, weights, 33, d, n_in, D)
    h = _heard(h, same + strikes / 3, weights, 34, d, n_in, D)
    h = _heard(h, same + beta, weights, 35, d, n_in, D)
    h = _gate(h)
    at = d * n_in + d
    C_W, C_H = _cosines(gram, 0, b, r, R), _cosines(gram, 1, b, r, R)
    wide = d + 4 * k
    for _ in range(n_layers):
        message = tl.dot(h, _matrix(weights, at, d, k, d, D, K), input_precision="ieee")
        message = tl.where(c[:, None] < r, message, 0.0)
        at += k * d
        mean = tl.sum(message, axis=0) / r
        new = tl.dot(h, _matrix(weights, at, d, d, wide, D, D), input_precision="ieee")
        new += tl.sum(mean[:, None] * _matrix(weights, at + d, k, d, wide, K, D), axis=0)[None, :]
        new += _listen(C_W, message, weights, at + d + k, d, k, wide, D, K)
        new += _listen(C_H, message, weights, at + d + 2 * k, d, k, wide, D, K)
        new += _listen(C_W * C_H, message, weights, at + d + 3 * k, d, k, wide, D, K)
        bias = tl.load(weights + at + d * wide + o, mask=o < d, other=0.0)
        h += _gate(new + bias[None, :])
        at += d * wide + d
    out = tl.dot(h, _matrix(weights, at, d, 12, d, D, 16), input_precision="ieee")
    last = tl.arange(0, 16)
    out += tl.load(weights + at + 12 * d + last, mask=last < 12, other=0.0)[None, :]
    out = tl.where(strikes < patience, _bounded(out, 4.0), 0.0)
    apart = n_b * 2 * r
    to = amounts + b * 2 * r + c
    for side in tl.static_range(2):
        D_all, P_all = (D_all_W, P_all_W) if side == 0 else (D_all_H, P_all_H)
        D_one, P_one = (D_one_W, P_one_W) if side == 0 else (D_one_H, P_one_H)
        more, by_D = _column(out, 6 * side, 16), _column(out, 6 * side + 1, 16)
        by_P, by_S = _column(out, 6 * side + 2, 16), _column(out, 6 * side + 3, 16)
        over_all, by_one = _column(out, 6 * side + 4, 16), _column(out, 6 * side + 5, 16)
        d_amount = beta + beta * more + by_D + over_all * D_all + by_one * D_one
        tl.store(to + side * r, d_amount, mask=c < r)
        tl.store(to + apart + side * r, by_P + over_all * P_all + by_one * P_one, mask=c < r)
        tl.store(to + 2 * apart + side * r, by_S, mask=c < r)


def mix(
    sums: Float[Tensor, "13 *b 2 r"],
    gram: Float[Tensor, "*b 2 r r"],
    progress: Float[Tensor, "4 *b"],
    patience: float,
    weights: Float[Tensor, " k"],
    sizes: tuple[int, int, int],
) -> Float[Tensor, "3 *b 2 r"]:
    """Amounts of D, P and S; the twins are `AnyRankNetwork.forward` and `AnyRank.amounts`."""
    d, k, n_layers = sizes
    _, *batch, _, r = sums.shape
    amounts = sums.new_empty(3, *batch, 2, r)
    R, D, K = (max(16, triton.next_power_of_2(size)) for size in (r, d, k))
    _mix[(math.prod(batch),)](
        *(sums.contiguous(), gram.contiguous(), progress.contiguous(), weights, amounts),
        *(patience, math.log(r), r, d, k),
        n_layers=n_layers,
        R=R,
        D=D,
        K=K,
        num_warps=8 if R > 32 else 4,
    )
    return amounts
