"""Hierarchical alternating least squares: exact minimisation by one component after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import Matrix, Normal, n_rows
from factormer.data.factors import Factors
from factormer.kernels import compiled, fused_sweeps, real
from factormer.kernels.threads import share
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.sentence import Sentence

# Curvature, relative to the largest, below which a component counts as zero: a rounding error.
FLAT = {dtype: (100 * torch.finfo(dtype).eps) ** 2 for dtype in (torch.float32, torch.float64)}
_HEAVY = 2e6  # multiplications from which sweeps in float32 are worth their compilation


def sweep(normal: Normal, H: Float[Tensor, "*b n r"]) -> Float[Tensor, "*b n r"]:
    """One sweep on min ½‖W Hᵀ − V‖² over H ≥ 0: H_c ← (H_c + (VᵀW − H WᵀW)_c / (WᵀW)_cc)₊.

    A component whose column of W is zero is left as it is, so none is lost: if H_c becomes zero,
    W_c stays, and H_c can grow again as soon as that pays.
    """
    VtW, WtW = normal
    diagonal = WtW.diagonal(dim1=-2, dim2=-1)
    floor = FLAT[WtW.dtype] * diagonal.amax(dim=-1, keepdim=True)
    columns = list(H.unbind(dim=-1))
    for c in range(len(columns)):
        descent = VtW[..., c] - (torch.stack(columns, dim=-1) @ WtW[..., :, c, None]).squeeze(-1)
        curvature = WtW[..., c, c, None]
        is_curved = curvature > floor
        safe = torch.where(is_curved, curvature, torch.ones_like(curvature))
        columns[c] = torch.where(is_curved, (columns[c] + descent / safe).clamp(min=0), columns[c])
    return torch.stack(columns, dim=-1)


def hals_nnls(
    normal: Normal, H: Float[Tensor, "*b n r"], *, n_sweeps: Int[Tensor, "*b"]
) -> Float[Tensor, "*b n r"]:
    """Several sweeps from the nonnegative part of H.

    Compiled for one matrix, on a CPU in float64 where that costs little; in torch for stacks and
    gradients.
    """
    if (fused := fused_sweeps(H)) is not None:
        return fused.sweeps(*normal, H, int(n_sweeps), FLAT[H.dtype])
    plain = _is_plain(H)
    work = H.numel() * H.shape[-1] * int(n_sweeps) if plain else 0
    dtype = H.dtype if work >= _HEAVY else torch.float64
    loops = compiled("sweeps", real(dtype)) if plain else None
    if loops is None:
        H, n_sweeps = H.clamp(min=0), n_sweeps.to(H.device)
        for done in range(int(n_sweeps.max())):
            H = torch.where((done < n_sweeps)[..., None, None], sweep(normal, H), H)
        return H
    n, count = len(H), int(n_sweeps)
    g = loops.scaled(normal.WtW.to(dtype).numpy(), FLAT[H.dtype])
    result = torch.empty_like(H, dtype=dtype)
    Ft, Xt, out = (F.to(dtype).mT.numpy() for F in (normal.VtW, H, result))
    kernel = loops.sweeps(g.dtype)

    def some(start: int, stop: int) -> None:
        kernel(Ft, Xt, out, count, start, stop, *loops.Scratch.of(g))

    share(some, n, work=work)
    return result.to(H.dtype)


def _is_plain(H: Tensor) -> bool:
    return H.dim() == 2 and H.device.type == "cpu" and not torch.is_grad_enabled()


class HALSState(NamedTuple):
    """The point, the sweeps of its half-steps, and (VH, HᵀH) if known.

    `read` is the W that the last step began at, and its VᵀW.
    """

    factors: Factors
    sweeps_h: Int[Tensor, "*b"]
    sweeps_w: Int[Tensor, "*b"]
    known: Normal | None = None
    read: tuple[Float[Tensor, "*b m r"], Float[Tensor, "*b n r"]] | None = None

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """Twice the objective at the point."""
        return problem.sq_error(self.factors, self.known)


def penalised(normal: Normal, on: Penalties) -> Normal:
    """The normal equations with L1 and L2 in them: VᵀW − λ₁ and WᵀW + λ₂ I.

    A column of H that is fixed gets no curvature, and so is left as it is. One whose column of W
    is zero is only a penalty to lower, and gets some.
    """
    if on.is_plain:
        return normal
    (VtW, WtW), (l1, l2) = normal, on.elastic or (0.0, 0.0)
    before = WtW.diagonal(dim1=-2, dim2=-1)
    after = before + l2
    if l1:
        largest = after.amax(dim=-1, keepdim=True)
        flat = after <= FLAT[after.dtype] * largest
        after = torch.where(flat, torch.where(largest > 0, largest, 1.0), after)
    if on.fixed is not None:
        after = torch.where(on.fixed.at.to(after.device), 0.0, after)
    pull = l1 if on.pull is None else l1 - on.pull
    return Normal(VtW - pull, WtW + torch.diag_embed(after - before))


@dataclass(frozen=True)
class HALS:
    """Accelerated HALS (Gillis & Glineur, 2012): a product with V pays for several sweeps.

    A half-step on n rows makes 1 + ⌊alpha·(1 + (mn + mr)/(nr + n))⌋ sweeps, at most `max_sweeps`
    (mn is the cost of a product: less if V is sparse or compressed): then they cost about alpha
    times the product they share. alpha = 0 is plain HALS. A descent method: no half-step raises
    the objective. L1 and L2 penalties are part of the normal equations, and known columns stay.
    """

    alpha: float = 0.5
    max_sweeps: int = 10

    def init(self, problem: Problem, x0: Factors) -> HALSState:
        if not (problem.is_quadratic and problem.is_elastic):
            raise ValueError(
                Sentence(
                    "{solver=hals} takes only the squared error, and penalties L1 and L2; use "
                    "{solver=auto} for other losses and penalties"
                )
            )
        V, r = problem.V, problem.rank
        return HALSState(x0, self.n_sweeps(V, r), self.n_sweeps(V.T, r))

    def step(self, problem: Problem, state: HALSState) -> HALSState:
        V, (W, H) = problem.V, state.factors
        first = V.normal(W)
        H = hals_nnls(penalised(first, problem.on_h), H, n_sweeps=state.sweeps_h)
        known = V.T.normal(H)
        right = penalised(known, problem.on_w)
        after = hals_nnls(right, W, n_sweeps=state.sweeps_w)  # the same code, by eq. 7
        return state._replace(factors=Factors(after, H), known=known, read=(W, first.VtW))

    def adopt(self, problem: Problem, state: HALSState, x: Factors) -> HALSState:
        return state._replace(factors=x, known=None, read=None)

    def sweeps(self, m: int, n: int, r: int, work: float) -> int:
        """Sweeps of an update of H for one matrix, `work` being what a product costs a column."""
        count = 1 + int(self.alpha * (1 + (work + m * r) / (n * r + n))) if self.alpha else 1
        return min(count, self.max_sweeps)

    def all_sweeps(self, m: np.ndarray, n: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Sweeps of an update of H for each of many dense matrices."""
        extra = self.alpha * (1 + (m * n + m * r) / (n * r + n))
        return np.minimum(1 + extra.astype(int), self.max_sweeps) if self.alpha else np.ones_like(m)

    def n_sweeps(self, V: Matrix, r: int) -> Int[Tensor, "*b"]:
        """Sweeps of an update of H."""
        if len(V.shape) == 2 and V.rows is None and V.cols is None:
            return torch.tensor(self.sweeps(*V.shape, r, float(V.work())), device=V.device)
        m, n = n_rows(V), n_rows(V.T)
        extra = (self.alpha * (1 + (V.work() + m * r) / (n * r + n))).long()
        return (1 + extra).clamp(max=self.max_sweeps) if self.alpha else torch.ones_like(extra)
