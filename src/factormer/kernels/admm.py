"""The ADMM steps of a half-step on a GPU, one kernel: a program has a few rows to itself.

Imported by `kernels.fused_admm()` alone, where triton is present and works: it wants a C compiler
for what it has to say to the driver.
"""

# pyright: reportIndexIssue=false, reportPrivateImportUsage=false
from __future__ import annotations

import inspect
import math
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from jaxtyping import Float
from torch import Tensor

_ROWS = 32  # of a program

try:
    triton.runtime.driver.active.get_current_target()
except Exception as error:  # whatever it is, torch can do without
    raise ImportError("triton cannot compile kernels here") from error


def jit(function: Any = None, **options: Any) -> Any:
    """Compile a kernel when it is first launched, without what checks types around it."""
    if function is None:
        return lambda function: jit(function, **options)
    return triton.jit(inspect.unwrap(function), **options)


@jit(do_not_specialize=["n", "r", "n_inner"])
def _admm(F, inverse, H, U, rho, H_to, U_to, n, r, n_inner, N: tl.constexpr, R: tl.constexpr):
    b, k, cols = tl.program_id(1), tl.arange(0, R), tl.arange(0, R)
    rows = tl.program_id(0) * N + tl.arange(0, N)
    at = (b * n + rows[:, None]) * r + cols[None, :]
    real = (rows[:, None] < n) & (cols[None, :] < r)
    f = tl.load(F + at, mask=real, other=0.0)
    h = tl.load(H + at, mask=real, other=0.0)
    u = tl.load(U + at, mask=real, other=0.0)
    square = (k[:, None] < r) & (cols[None, :] < r)
    inv = tl.load(inverse + (b * r + k[:, None]) * r + cols[None, :], mask=square, other=0.0)
    weight = tl.load(rho + b)
    for _ in range(n_inner):
        free = tl.dot(f + weight * (h + u), inv, input_precision="ieee")
        h = tl.maximum(free - u, 0.0)
        u = u + h - free
    tl.store(H_to + at, h, mask=real)
    tl.store(U_to + at, u, mask=real)


def admm(
    VtW: Float[Tensor, "*b n r"],
    inverse: Float[Tensor, "*b r r"],
    H: Float[Tensor, "*b n r"],
    U: Float[Tensor, "*b n r"],
    rho: Float[Tensor, "*b"],
    n_inner: int,
) -> tuple[Float[Tensor, "*b n r"], Float[Tensor, "*b n r"]]:
    """(H, U) after `n_inner` steps; the twin is the loop of `solvers.ao_admm.admm_nnls`."""
    given = [array.contiguous() for array in (VtW, inverse, H, U, rho)]
    *batch, n, r = H.shape
    H_to, U_to = (torch.empty_like(given[2]) for _ in range(2))
    R = max(16, triton.next_power_of_2(r))
    grid = (triton.cdiv(n, _ROWS), math.prod(batch))
    _admm[grid](*given, H_to, U_to, n, r, n_inner, N=_ROWS, R=R)
    return H_to, U_to
