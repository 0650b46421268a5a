"""Sweeps of HALS on a GPU as one kernel: in torch each component of each sweep is several.

Imported by `kernels.fused_sweeps()` alone, where triton is present; the twin is the loop over
`solvers.hals.sweep`.
"""

# pyright: reportIndexIssue=false, reportPrivateImportUsage=false
from __future__ import annotations

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from jaxtyping import Float
from torch import Tensor

from factormer.kernels.admm import jit

_ENTRIES = 2048  # of a factor, of a program


@jit(do_not_specialize=["n", "r", "n_sweeps"])
def _sweeps(F, G, flat, H, H_to, n, r, n_sweeps, N: tl.constexpr, R: tl.constexpr):
    rows, cols = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, R)
    real = (rows[:, None] < n) & (cols[None, :] < r)
    at = rows[:, None].to(tl.int64) * r + cols[None, :]
    f = tl.load(F + at, mask=real, other=0.0)
    h = tl.maximum(tl.load(H + at, mask=real, other=0.0), 0.0)
    floor = tl.load(flat)
    for _ in range(n_sweeps):
        for c in range(r):
            row = tl.load(G + c * r + cols, mask=cols < r, other=0.0)
            curvature = tl.load(G + c * r + c)
            is_c = cols[None, :] == c
            descent = tl.sum(tl.where(is_c, f, 0.0) - h * row[None, :], axis=1)
            before = tl.sum(tl.where(is_c, h, 0.0), axis=1)
            is_curved = curvature > floor
            step = descent / tl.where(is_curved, curvature, 1.0)
            after = tl.where(is_curved, tl.maximum(before + step, 0.0), before)
            h = tl.where(is_c, after[:, None], h)
    tl.store(H_to + at, h, mask=real)


def sweeps(
    VtW: Float[Tensor, "n r"],
    WtW: Float[Tensor, "r r"],
    H: Float[Tensor, "n r"],
    n_sweeps: int,
    flat: float,
) -> Float[Tensor, "n r"]:
    """H after so many sweeps from its nonnegative part; `flat` as in `solvers.hals.FLAT`."""
    F, G, H = (array.contiguous() for array in (VtW, WtW, H))
    (n, r), H_to = H.shape, torch.empty_like(H)
    R = max(2, triton.next_power_of_2(r))
    N = max(1, _ENTRIES // R)
    floor = flat * G.diagonal().amax()
    _sweeps[(triton.cdiv(n, N),)](F, G, floor, H, H_to, n, r, n_sweeps, N=N, R=R)
    return H_to
