"""Sweeps of HALS on a GPU, forward and back, one kernel each: a program works on a few rows.

Component by component, a sweep is hundreds of launches. Rows of H are independent, so a program can
run all components and all sweeps of its rows with only G in memory.
"""

# pyright: reportIndexIssue=false
from __future__ import annotations

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from jaxtyping import Float
from torch import Tensor

_ROWS = 16  # per program


@triton.jit
def _forward(G, inverse, F, points, n, r, n_sweeps, stride, R: tl.constexpr, N: tl.constexpr):
    b = tl.program_id(1)
    rows, cols = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, R)
    at = b * n * r + rows[:, None] * r + cols[None, :]
    real = (rows[:, None] < n) & (cols[None, :] < r)
    x = tl.load(points + at, mask=real, other=0.0)
    f = tl.load(F + at, mask=real, other=0.0)
    for s in range(n_sweeps):
        for c in range(r):
            g = tl.load(G + b * r * r + cols * r + c, mask=cols < r, other=0.0)
            is_c = cols[None, :] == c
            descent = tl.sum(tl.where(is_c, f, 0.0) - x * g[None, :], axis=1)
            step = descent * tl.load(inverse + b * r + c)
            x = tl.where(is_c, tl.maximum(x + step[:, None], 0.0), x)
        tl.store(points + (s + 1) * stride + at, x, mask=real)


@triton.jit
def _backward(
    G, inverse, points, by_H, scaled, n, r, n_sweeps, stride, R: tl.constexpr, N: tl.constexpr
):
    b = tl.program_id(1)
    rows, cols = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, R)
    at = b * n * r + rows[:, None] * r + cols[None, :]
    real = (rows[:, None] < n) & (cols[None, :] < r)
    by = tl.load(by_H + at, mask=real, other=0.0)
    for back in range(n_sweeps):
        s = n_sweeps - 1 - back
        after = tl.load(points + (s + 1) * stride + at, mask=real, other=0.0)
        found = tl.zeros_like(by)
        for back_c in range(r):
            c = r - 1 - back_c
            g = tl.load(G + b * r * r + cols * r + c, mask=cols < r, other=0.0)
            i = tl.load(inverse + b * r + c)
            is_c = cols[None, :] == c
            own = tl.sum(tl.where(is_c & (after > 0), by, 0.0), axis=1)
            step = own * i
            found = tl.where(is_c, step[:, None], found)
            stays = tl.where(i == 0, own, 0.0)
            by = tl.where(is_c, stays[:, None], by - step[:, None] * g[None, :])
        tl.store(scaled + s * stride + at, found, mask=real)
    tl.store(by_H + at, by, mask=real)


def sweeps(
    G: Float[Tensor, "b r r"],
    inverse: Float[Tensor, "b r"],
    F: Float[Tensor, "b n r"],
    H: Float[Tensor, "b n r"],
    n_sweeps: int,
) -> Float[Tensor, "s b n r"]:
    """H ≥ 0 and where each sweep from there ends."""
    points = H.new_empty(n_sweeps + 1, *H.shape)
    points[0] = H
    grid, sizes, options = _launch(H, n_sweeps)
    _forward[grid](G.contiguous(), inverse.contiguous(), F.contiguous(), points, *sizes, **options)
    return points


def gradients(
    G: Float[Tensor, "b r r"],
    inverse: Float[Tensor, "b r"],
    points: Float[Tensor, "s b n r"],
    gradient: Float[Tensor, "b n r"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by G, by F, and by the point that the sweeps began at."""
    by_H, n_sweeps = gradient.contiguous().clone(), len(points) - 1
    scaled = torch.empty_like(points[1:])  # by F, sweep by sweep
    grid, sizes, options = _launch(by_H, n_sweeps)
    _backward[grid](G.contiguous(), inverse.contiguous(), points, by_H, scaled, *sizes, **options)
    # When H_c was set, components up to c were where the sweep ended, the others where it began.
    r = G.shape[-1]
    ended = torch.ones(r, r, dtype=torch.bool, device=G.device).triu()
    products = (points[1:].mT @ scaled, points[:-1].mT @ scaled)
    by_G = -torch.where(ended, *products).sum(dim=0)
    return by_G, scaled.sum(dim=0), by_H


def _launch(
    H: Float[Tensor, "b n r"], n_sweeps: int
) -> tuple[tuple[int, int], tuple[int, ...], dict[str, int]]:
    b, n, r = H.shape
    R = max(16, triton.next_power_of_2(r))
    return (triton.cdiv(n, _ROWS), b), (n, r, n_sweeps, b * n * r), {"R": R, "N": _ROWS}
