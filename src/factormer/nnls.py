"""The coefficients of data in known components: nonnegative least squares, exactly, for many rows.

Rows are independent. Compiled HALS sweeps guess for all of them together which coefficients are
zero; an active-set method then solves each row exactly, and proves it by the signs of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.kernels import active_set, exact_rows
from factormer.kernels.threads import share, threads
from factormer.matrix import Dense, Matrix, Normal
from factormer.solvers.hals import hals_nnls

_BLOCK = 2**15  # rows that are worked on at a time, so that memory is bounded
_SWEEPS = 12


@dataclass(frozen=True, eq=False)
class Coder:
    """Finds min ½‖W Hᵀ − V‖² + l1·‖W‖₁ + ½·l2·‖W‖² over W ≥ 0 for a given H (eq. 8, transposed).

    What depends on H alone is done once: with columns of [H; √l2·I] brought to length 1, and that
    = QR, a row v of V is the short target Qᵀ[v; 0], and the problem is one with r columns of R.
    """

    sizes: Float[Tensor, " r"]
    Q: Float[Tensor, "n k"]
    R: Float[Tensor, "k r"]
    l1: Float[Tensor, " r"]

    @staticmethod
    def of(H: Float[Tensor, "n r"], l1: float = 0.0, l2: float = 0.0) -> Coder:
        """For the components that are columns of H."""
        n, r = H.shape
        columns = H.double().contiguous()  # one layout, so that rounding is the same
        if l2:
            ridge = l2**0.5 * torch.eye(r, dtype=torch.float64, device=H.device)
            columns = torch.cat([columns, ridge])
        largest = columns.amax(dim=0)
        largest = torch.where(largest > 0, largest, torch.ones_like(largest))
        sizes = largest * (columns / largest).norm(dim=0).clamp(min=1)
        Q, R = torch.linalg.qr(columns / sizes)
        return Coder(sizes.cpu(), Q[:n].contiguous(), R.cpu(), (l1 / sizes).cpu())

    @torch.no_grad()
    def __call__(self, V: Matrix) -> Float[Tensor, "m r"]:
        """W, in the precision of V and on its device; it is found on the CPU in float64."""
        m, r = V.shape[0], len(self.sizes)
        W = torch.empty(m, r, dtype=torch.float64)
        Q = self.Q.to(V.device)
        with threads():
            whole = None if isinstance(V, Dense) else V.to(torch.float64) @ Q
            for start in range(0, m, _BLOCK):
                rows = slice(start, min(start + _BLOCK, m))
                if isinstance(V, Dense):
                    targets = Dense(V.entries[rows].double()) @ Q
                else:
                    targets = whole[rows]  # pyright: ignore[reportOptionalSubscript]
                W[rows] = self._solve(targets.cpu().contiguous())
        return (W / self.sizes).to(V.device, V.dtype)

    def _solve(self, targets: Float[Tensor, "m k"]) -> Float[Tensor, "m r"]:
        """The coefficients of columns of length 1."""
        G = self.R.mT @ self.R
        size = targets.abs().amax(dim=1, keepdim=True)
        unit = targets / torch.where(size > 0, size, torch.ones_like(size))
        l1 = self.l1 / size if self.l1.any() else self.l1
        normal = Normal(unit @ self.R - l1.nan_to_num(posinf=0.0), G)
        guess = hals_nnls(normal, torch.zeros_like(normal.VtW), n_sweeps=torch.tensor(_SWEEPS))
        X, (m, k), r = guess.contiguous().numpy(), targets.shape, len(self.sizes)
        solve = _loops()
        given = (self.R.mT.contiguous().numpy(), G.numpy(), targets.numpy(), self.l1.numpy(), X)
        eps = 10 * max(k, r) * torch.finfo(torch.float64).eps

        def some(start: int, stop: int) -> None:
            solve(*given, start, stop, eps, *active_set.Room.of(r, k))

        share(some, m, work=m * r * r * r)
        return torch.from_numpy(X)


def _loops() -> Callable[..., int]:
    rows = exact_rows()
    return active_set.solve_rows if rows is None else rows.solve_rows()
