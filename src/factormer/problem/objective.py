"""Problems beyond least squares: any β-divergence, weights, unknown entries, penalties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense, Matrix, Normal, Observed, Sparse, n_entries, turned
from factormer.data.entries import Entries
from factormer.data.factors import Factors
from factormer.problem.losses import FROBENIUS, Beta
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem

_BLOCK = 2**20  # entries of V that are looked at together


@dataclass(frozen=True, eq=False)
class Objective(Problem):
    """min Σ ω d(V, W Hᵀ) + p(W) + q(H), where V carries the weights ω (`Observed`), or has none.

    The factors are nonnegative unless the penalties say otherwise. What solvers and stop rules
    call the squared error is twice the objective here, so that the numbers of plain least squares
    are a special case, and √(2·objective / entries) is what a trace holds.
    """

    divergence: Beta = FROBENIUS
    on_w: Penalties = field(default_factory=Penalties)
    on_h: Penalties = field(default_factory=Penalties)

    @property
    def T(self) -> Objective:
        return turned(
            self, lambda: Objective(self.V.T, self.rank, self.divergence, self.on_h, self.on_w)
        )

    @property
    def is_convex_in_fit(self) -> bool:
        """Whether d is convex in W Hᵀ."""
        return 1 <= self.divergence.beta <= 2

    @cached_property
    def entries(self) -> Entries:
        """The entries of V by rows, for compiled loops."""
        return Entries.of(self.V)

    def size(self) -> Float[Tensor, "*b"]:
        return self.V.count() if isinstance(self.V, Observed) else n_entries(self.V)

    def mean(self) -> Float[Tensor, "*b"]:
        return (self.V.total() / self.size()).to(self.V.dtype)

    def normalized(self) -> tuple[Objective, Float[Tensor, "*b"]]:
        """The problem of V / c, c the mean, with weights of mean 1 and with penalties to match.

        Its errors are those of this one over `unit(c)`. A stack with penalties is left as it is,
        since they cannot differ from member to member.
        """
        mean, level = self.mean(), self._level
        mean = torch.where(self.V.total() > 0, mean, torch.ones_like(mean))
        if self._is_rigid:
            mean = torch.ones_like(mean)
        c, omega = (1.0 if x.dim() else float(x) for x in (mean, level))
        beta, p, dtype = self.divergence.beta, self._share, self.V.dtype
        on_w = self.on_w.scaled(c, beta, p, omega, dtype)
        on_h = self.on_h.scaled(c, beta, 1 - p, omega, dtype)
        V = self.V.scaled(1 / mean)
        V = V.weighted(1 / level) if isinstance(V, Observed) else V
        return Objective(V, self.rank, self.divergence, on_w, on_h), mean

    def unit(self, mean: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        """√(level·cᵝ), for weights of mean `level`."""
        return mean.double() ** (self.divergence.beta / 2) * self._level.sqrt()

    @property
    def _is_rigid(self) -> bool:
        """Whether this is a stack whose members cannot have units of their own."""
        return len(self.V.shape) > 2 and not (self.on_w.is_plain and self.on_h.is_plain)

    @property
    def _level(self) -> Float[Tensor, "*b"]:
        """The mean of the weights."""
        V = self.V
        if not isinstance(V, Observed) or self._is_rigid:
            return torch.ones(V.shape[:-2], dtype=torch.float64, device=V.device)
        return V.level()

    @property
    def _share(self) -> float:
        """The p such that W takes up cᵖ of a factor c of V, and H the rest.

        Each takes its root, but a factor that has sizes of its own keeps them.
        """
        on_w, on_h = self.on_w.firmness, self.on_h.firmness
        return 0.5 if on_w == on_h else float(on_w < on_h)

    def scaled_back(self, x: Factors, c: Float[Tensor, "*b"]) -> Factors:
        p, c = self._share, c.to(x.W)[..., None, None]
        return x.scale(c[..., 0, 0]) if p == 0.5 else Factors(x.W * c**p, x.H * c ** (1 - p))

    def taken(self, x: Factors) -> Factors:
        W, H = super().taken(x)
        return Factors(self.on_w.placed(W), self.on_h.placed(H))

    def start(self) -> Problem:
        """The plain problem in which a start is looked for."""
        V = self.V
        return Problem(V.filled if isinstance(V, Observed) else V, self.rank)

    def loss(self, x: Factors) -> Float[Tensor, "*b"]:
        """The objective."""
        return self.fit(x) + self.on_w.value(x.W).double() + self.on_h.value(x.H).double()

    def sq_error(self, x: Factors, known: Normal | None = None) -> Float[Tensor, "*b"]:
        """Twice the objective."""
        return 2 * self.loss(x)

    def rmse(self, x: Factors) -> Float[Tensor, "*b"]:
        """√(2·objective / entries)."""
        return (self.sq_error(x) / self.size()).sqrt()

    def blurred(self) -> Float[Tensor, "*b"]:
        if self.divergence.beta == 2 and not isinstance(self.V, Observed):
            return super().blurred()
        return torch.zeros_like(self.mean())  # they are not from products

    def fit(self, x: Factors) -> Float[Tensor, "*b"]:
        """Σ ω d(V, W Hᵀ), in float64; not below 0, where rounding could lead."""
        return self._fit(x).clamp(min=0)

    def _fit(self, x: Factors) -> Float[Tensor, "*b"]:
        d, V = self.divergence, self.V
        if isinstance(V, Sparse) and d.beta == 2:
            return V.sq_error(x) / 2
        if isinstance(V, Sparse) and d.beta == 1:  # zeros count, and cost y
            total = (x.W.double().sum(dim=0) * x.H.double().sum(dim=0)).sum()
            for v, y, _, _ in self._stored(V, x):
                total = total + (d(v, y) - y).double().sum()
            return total
        parts = self._weighted(x)
        if d.beta == 2:  # whose squares float32 may not hold
            parts = ((v.double(), y.double(), w, at) for v, y, w, at in parts)
        return torch.stack([_sum(w, d(v, y)) for v, y, w, _ in parts]).sum(dim=0)

    def gradient(self, x: Factors) -> Float[Tensor, "*b n r"]:
        """The gradient of the fit by H."""
        d, V, (W, H) = self.divergence, self.V, x
        if isinstance(V, Sparse) and d.beta == 2:
            VtW, WtW = V.normal(W)
            return H @ WtW - VtW
        if isinstance(V, Sparse) and d.beta == 1:
            out = W.sum(dim=0).expand_as(H).clone()
            for v, y, rows, columns in self._stored(V, x):
                out.index_add_(0, columns, W[rows] * (d.slope(v, y) - 1)[:, None])
            return out
        out = torch.zeros_like(H)
        for v, y, w, at in self._weighted(x):
            slope = d.slope(v, y) if w is None else w * d.slope(v, y)
            if isinstance(at, tuple):
                out.index_add_(0, at[1], W[at[0]] * slope[:, None])
            else:
                out += slope.mT @ W[..., at, :]
        return out

    def parts(self, x: Factors) -> tuple[Float[Tensor, "*b n r"], Float[Tensor, "*b n r"]]:
        """Positive (A, B) such that the gradient of the fit by H is B − A."""
        d, V, (W, H) = self.divergence, self.V, x
        up, down = torch.zeros_like(H), torch.zeros_like(H)
        if isinstance(V, Sparse) and d.beta == 1:
            for v, y, rows, columns in self._stored(V, x):
                up.index_add_(0, columns, W[rows] * d.parts(v, y)[0][:, None])
            return up, W.sum(dim=0).expand_as(H)
        for v, y, w, at in self._weighted(x):
            pair = d.parts(v, y) if w is None else (w * p for p in d.parts(v, y))
            for out, part in zip((up, down), pair, strict=True):
                if isinstance(at, tuple):
                    out.index_add_(0, at[1], W[at[0]] * part[:, None])
                else:
                    out += part.mT @ W[..., at, :]
        return up, down

    def stationarity(self, x: Factors) -> Float[Tensor, "*b"]:
        """Norm of what a proximal gradient step would change, over its length: 0 where none would.

        For factors that are only nonnegative, with L1 and L2 at most, the projected gradient.
        """
        by_H, by_W = self._step(x), self.T._step(x.swap())
        return (by_H.square().sum(dim=(-2, -1)) + by_W.square().sum(dim=(-2, -1))).sqrt()

    def _step(self, x: Factors) -> Float[Tensor, "*b n r"]:
        gradient, H, on = self.gradient(x), x.H, self.on_h
        if on.elastic is not None:
            l1, l2 = on.elastic
            gradient = gradient + l1 + l2 * H
            gradient = torch.where(H > 0, gradient, gradient.clamp(max=0))
            return gradient if on.fixed is None else gradient * ~on.fixed.at.to(H.device)
        A, L, mu = on.quadratic(H)
        gradient = gradient + H @ A - L
        if mu:
            rough = H.diff(dim=-2)
            gradient[..., 1:, :] += mu * rough
            gradient[..., :-1, :] -= mu * rough
        size = (x.W.mT @ x.W + A).diagonal(dim1=-2, dim2=-1).sum(dim=-1) + 4 * mu
        t = 1 / size.clamp(min=torch.finfo(H.dtype).tiny)
        return (H - on.prox(H - t[..., None, None] * gradient, t)) / t[..., None, None]

    def _stored(self, V: Sparse, x: Factors) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Stored entries v, their fit y, rows and columns, some at a time."""
        at = V.by_rows
        counts = at.starts.diff().long()
        rows = torch.repeat_interleave(torch.arange(len(counts), device=V.device), counts)
        size = max(1, _BLOCK // self.rank)
        for a in range(0, max(len(rows), 1), size):
            i, j = rows[a : a + size], at.columns[a : a + size].long()
            yield V.scale * at.values[a : a + size], (x.W[i] * x.H[j]).sum(dim=-1), i, j

    def _weighted(self, x: Factors) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Any]]:
        """Entries v, their fit y and weights, and where: a slice of rows, or (rows, columns)."""
        V = self.V
        if isinstance(V, Observed) and isinstance(V.V, Sparse):
            start = 0
            for v, y, i, j in self._stored(V.V, x):
                yield v, y, V.weights[start : start + len(v)], (i, j)
                start += len(v)
            return
        data = V.V if isinstance(V, Observed) else V
        many = len(V.shape) > 2
        for rows, v in data.blocks(None if many else max(1, _BLOCK // V.shape[-1])):
            w = V.weights[..., rows, :] if isinstance(V, Observed) else _real(V)
            yield v, x.W[..., rows, :] @ x.H.mT, w, rows


def _real(V: Matrix) -> Tensor | None:
    """Weights 0 for the padding of a stack."""
    if not isinstance(V, Dense) or V.rows is None or V.cols is None:
        return None
    return (V.rows[..., :, None] & V.cols[..., None, :]).to(V.dtype)


def _sum(w: Tensor | None, d: Tensor) -> Tensor:
    weighted = d.double() if w is None else torch.where(w > 0, w * d, 0).double()
    return weighted.sum() if d.dim() == 1 else weighted.sum(dim=(-2, -1))


def check_zeros(V: Matrix, loss: Beta) -> None:
    """β ≤ 0 has a pole at v = 0."""
    if loss.beta > 0:
        return
    if isinstance(V, Observed):
        data = V.V
        values = data.entries if isinstance(data, Dense) else data.by_rows.values
        zeros = int(((values == 0) & V.known).sum())
    elif isinstance(V, Sparse):
        zeros = V.shape[0] * V.shape[1] - int((V.by_rows.values > 0).sum())
    else:
        zeros = int((V.entries == 0).sum())  # pyright: ignore[reportAttributeAccessIssue]
    if zeros:
        raise ValueError(
            f"loss is β = {loss.beta:g} and V has {zeros} zeros, at which it is infinite: add a "
            "small constant to V, leave zeros out (missing='zeros'), or choose "
            "'kullback-leibler'"
        )
