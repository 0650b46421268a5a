"""Hierarchical alternating least squares: exact minimisation by one component after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.factors import Factors
from factormer.kernels.sweeps import sweeps as compiled_sweeps
from factormer.matrix import Matrix, Normal, n_rows
from factormer.problem import Problem


def flat(WtW: Float[Tensor, "*b r r"]) -> Float[Tensor, "*b"]:
    """The curvature at or below which a component counts as zero: rounding, and no direction."""
    largest = WtW.diagonal(dim1=-2, dim2=-1).amax(dim=-1)
    return (100 * torch.finfo(WtW.dtype).eps) ** 2 * largest


def sweep(normal: Normal, H: Float[Tensor, "*b n r"]) -> Float[Tensor, "*b n r"]:
    """One sweep on min ½‖W Hᵀ − V‖² over H ≥ 0: H_c ← (H_c + (VᵀW − H WᵀW)_c / (WᵀW)_cc)₊.

    A component whose column of W is zero is left as it is, so none is lost: where H_c becomes
    zero, W_c stays what it was, and H_c comes back as soon as that pays.
    """
    VtW, WtW = normal
    floor = flat(WtW)[..., None]
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
    """Several sweeps: compiled for one matrix on a CPU, in torch for stacks, GPUs and gradients."""
    kernel = compiled_sweeps() if _is_plain(H) else None
    if kernel is None:
        for done in range(int(n_sweeps.max())):
            H = torch.where((done < n_sweeps)[..., None, None], sweep(normal, H), H)
        return H
    Ht = H.mT.clone(memory_format=torch.contiguous_format)
    Ft = normal.VtW.mT.contiguous()
    G = normal.WtW.contiguous()
    kernel(G.numpy(), Ft.numpy(), Ht.numpy(), int(n_sweeps), float(flat(G)))
    return Ht.mT.contiguous()


def _is_plain(H: Tensor) -> bool:
    return H.dim() == 2 and H.device.type == "cpu" and not torch.is_grad_enabled()


class HALSState(NamedTuple):
    """The point alone."""

    factors: Factors


@dataclass(frozen=True)
class HALS:
    """Accelerated HALS (Gillis & Glineur, 2012): a product with V pays for several sweeps.

    A half-step on n rows makes 1 + ⌊alpha·(1 + (mn + mr)/(nr + n))⌋ sweeps, at most `max_sweeps`:
    then they cost about alpha times the product they share. alpha = 0 is plain HALS. A descent
    method: no half-step raises the loss.
    """

    alpha: float = 0.5
    max_sweeps: int = 10

    def init(self, problem: Problem, x0: Factors) -> HALSState:
        return HALSState(x0)

    def step(self, problem: Problem, state: HALSState) -> HALSState:
        W, H = state.factors
        H = self._half_step(problem.V, W, H)
        W = self._half_step(problem.V.T, H, W)  # the same code, by eq. 7
        return HALSState(Factors(W, H))

    def adopt(self, problem: Problem, state: HALSState, x: Factors) -> HALSState:
        return HALSState(x)

    def _half_step(self, V: Matrix, W: Tensor, H: Tensor) -> Tensor:
        return hals_nnls(V.normal(W), H, n_sweeps=self._n_sweeps(V, W.shape[-1]))

    def _n_sweeps(self, V: Matrix, r: int) -> Int[Tensor, "*b"]:
        m, n = n_rows(V), n_rows(V.T)
        extra = (self.alpha * (1 + (m * n + m * r) / (n * r + n))).long()
        return (1 + extra).clamp(max=self.max_sweeps) if self.alpha else torch.ones_like(extra)
