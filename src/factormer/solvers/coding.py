"""The coefficients of data in known components: nonnegative least squares, exactly, for many rows.

Rows are independent. Compiled HALS sweeps guess for all of them together which coefficients are
zero; an active-set method then solves each row exactly, and proves it by the signs of the gradient.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense, Matrix, Normal
from factormer.kernels import active_set, exact_rows
from factormer.kernels.threads import share, threads
from factormer.solvers.hals import hals_nnls

_BLOCK = 2**15  # rows per block, at most, to bound memory
_PATIENCE = 2e8  # multiplications between two checks of the clock, at most
_SWEEPS = 12
_DEPENDENT = 1e-3  # the part of a column that is not in those before it, from which VH suffices


@dataclass(frozen=True, eq=False)
class Coder:
    """Finds min ½‖W Hᵀ − V‖² + l1·‖W‖₁ + ½·l2·‖W‖² over W ≥ 0 for a given H (eq. 8, transposed).

    What depends only on H is done once: the columns of [H; √l2·I] are normalised, and factorized as
    QR; a row v of V becomes the short target Qᵀ[v; 0], for a problem with the r columns of R.
    With `total`, rows of W also have to sum to it.
    """

    sizes: Float[Tensor, " r"]
    Q: Float[Tensor, "n k"]
    R: Float[Tensor, "k r"]
    l1: Float[Tensor, " r"]
    total: float | None = None

    @staticmethod
    def of(
        H: Float[Tensor, "n r"], l1: float = 0.0, l2: float = 0.0, total: float | None = None
    ) -> Coder:
        """For the components that are columns of H."""
        n, r = H.shape
        columns = H.double().contiguous()  # one layout, so that rounding is the same
        if l2:
            ridge = l2**0.5 * torch.eye(r, dtype=torch.float64, device=H.device)
            columns = torch.cat([columns, ridge])
        largest = columns.abs().amax(dim=0)
        largest = torch.where(largest > 0, largest, torch.ones_like(largest))
        sizes = largest * (columns / largest).norm(dim=0).clamp(min=1)
        Q, R = torch.linalg.qr(columns / sizes)
        return Coder(sizes.cpu(), Q[:n].contiguous(), R.cpu(), (l1 / sizes).cpu(), total)

    def __call__(
        self,
        V: Matrix,
        before: Float[Tensor, "m r"] | None = None,
        *,
        until: float | None = None,
    ) -> Float[Tensor, "m r"]:
        """W, in the precision of V and on its device; see `within`."""
        return self.within(V, before, until=until)[0]

    @torch.no_grad()
    def within(
        self,
        V: Matrix,
        before: Float[Tensor, "m r"] | None = None,
        *,
        until: float | None = None,
        VH: Float[Tensor, "m r"] | None = None,
    ) -> tuple[Float[Tensor, "m r"], bool]:
        """W, found on the CPU in float64, and whether all of its rows were reached in time.

        V is not read if VH is known, unless components are so dependent that VH lacks digits.

        A row stays as it was `before` unless the new one fits as well. Rows not reached `until` a
        reading of `time.perf_counter()` stay too, or without `before` come from a few sweeps.
        """
        m, r = V.shape[0], len(self.sizes)
        W = torch.zeros(m, r, dtype=torch.float64)
        if before is not None:
            W.copy_(before.double().cpu() * self.sizes)
        Q, block, late = self.Q.to(V.device), self._block(), False
        with threads():
            whole = None if VH is None else self._targets(VH)
            if whole is None and not isinstance(V, Dense):
                whole = V.to(torch.float64) @ Q
            for start in range(0, m, block):
                rows = slice(start, min(start + block, m))
                late = late or (until is not None and time.perf_counter() >= until)
                if late and before is not None:
                    break
                if whole is not None:
                    targets = whole[rows]
                else:
                    assert isinstance(V, Dense)
                    targets = Dense(V.entries[rows].double()) @ Q
                solve = self._solve if self.total is None else self._solve_sums
                solve(targets.cpu().contiguous(), W[rows], exactly=not late)
        return (W / self.sizes).to(V.device, V.dtype), not late

    @property
    def knows_by_products(self) -> bool:
        """Whether VH suffices: not where R is too near to singular."""
        size, (k, r) = self.R.diagonal().abs(), self.R.shape
        return k == r and float(size.amin()) >= _DEPENDENT * float(size.amax())

    def _targets(self, VH: Float[Tensor, "m r"]) -> Float[Tensor, "m k"] | None:
        """VQ from VH = VQR; None where that is not known."""
        if not self.knows_by_products:
            return None
        B = VH.double().cpu() / self.sizes
        return torch.linalg.solve_triangular(self.R, B, upper=True, left=False)

    def _block(self) -> int:
        """How many rows are done soon, even if all are hard."""
        r = len(self.sizes)
        return max(1, min(_BLOCK, int(_PATIENCE / (20 * r**3))))

    def _solve(
        self, targets: Float[Tensor, "m k"], W: Float[Tensor, "m r"], *, exactly: bool
    ) -> None:
        """Set W to the coefficients of columns of length 1."""
        G = self.R.mT @ self.R
        size = targets.abs().amax(dim=1, keepdim=True)
        size = torch.where(size > 0, size, torch.ones_like(size))
        l1 = (self.l1 / size).nan_to_num(posinf=torch.finfo(torch.float64).max)
        normal = Normal((targets / size) @ self.R - l1, G)
        guess = hals_nnls(normal, W / size, n_sweeps=torch.tensor(_SWEEPS)).contiguous()
        if not exactly:
            W.copy_(guess * size)
            return
        (m, k), r = targets.shape, len(self.sizes)
        solve = _solver("solve_rows")
        given = (self.R.mT.contiguous(), G, targets, self.l1, W, guess)
        arrays = [tensor.numpy() for tensor in given]
        eps = 10 * max(k, r) * torch.finfo(torch.float64).eps

        def some(start: int, stop: int) -> None:
            solve(*arrays, start, stop, eps, *active_set.Room.of(r, k))

        share(some, m, work=m * r * r * r)

    def _solve_sums(
        self, targets: Float[Tensor, "m k"], W: Float[Tensor, "m r"], *, exactly: bool
    ) -> None:
        """Set W to coefficients of columns of length 1, each row of which has the known sum."""
        (m, k), r, total = targets.shape, len(self.sizes), self.total or 1.0
        X = W / self.sizes
        X = torch.where(X.sum(dim=1, keepdim=True) > 0, X, torch.ones_like(X))
        X = X / X.sum(dim=1, keepdim=True) * total
        if exactly:
            columns = (self.R * self.sizes).mT.contiguous()
            arrays = (columns.numpy(), targets.numpy(), total, X.numpy())
            solve = _solver("solve_sums")

            def some(start: int, stop: int) -> None:
                solve(*arrays, start, stop, *active_set.SumRoom.of(r, k))

            share(some, m, work=m * r * r * r)
        W.copy_(X * self.sizes)


def _solver(name: str) -> Callable[..., Any]:
    """The loops of that name, compiled where that can be."""
    rows = exact_rows(name)
    return getattr(active_set, name) if rows is None else getattr(rows, name)()
