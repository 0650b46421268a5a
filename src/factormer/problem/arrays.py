"""V and a point as compiled iterations take them, and the projected gradient from these."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.data import Dense, LowRank, Matrix, readings
from factormer.data.factors import Factors

_FEW = 5e5  # multiplications with V up to which one compiled thread beats torch


def is_readable(V: Matrix) -> TypeGuard[Dense | LowRank]:
    """Whether V is one matrix on a CPU, unpadded, that compiled loops can read."""
    if not isinstance(V, Dense | LowRank) or V.rows is not None or V.cols is not None:
        return False
    return len(V.shape) == 2 and V.device.type == "cpu"


def as_data(loops: Any, V: Dense | LowRank, r: int) -> Any:
    """V as the `Data` of `kernels.loops`."""
    empty = np.empty((0, 0))
    (*U, right), (*Z, right_T) = V.chain
    short = np.empty((r, U[0].shape[1])) if U else empty
    return loops.Data(right, right_T, *(U or [empty]), *(Z or [empty]), short)


def side_by_side(x: Factors) -> np.ndarray:
    """[Wᵀ, Hᵀ] by rows, in float64."""
    both = np.empty((x.W.shape[1], len(x.W) + len(x.H)))
    return np.concatenate([x.W.mT.numpy(), x.H.mT.numpy()], axis=1, out=both)


def slope(V: Matrix, x: Factors) -> Float[Tensor, ""] | None:
    """The norm of the projected gradient of ½‖W Hᵀ − V‖²; None where torch is as fast."""
    if torch.is_grad_enabled() or not is_readable(V):
        return None
    r = x.W.shape[1]
    loops = kernels.compiled("slope") if float(V.work()) * r <= _FEW else None
    if loops is None:
        return None
    readings.add(2 * isinstance(V, Dense))
    new = side_by_side(x)
    products, grams = np.empty_like(new), np.empty((1, r, r))
    points = loops.Points(new, new, new, products, grams)
    norm = loops.slope()(loops.parts(), as_data(loops, V, r), points, len(x.W))
    return torch.tensor(norm, dtype=torch.float64)
