"""AO-ADMM with penalties, constraints and other losses, by proximal steps (Huang et al., 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense, Normal, Observed
from factormer.data.factors import Factors
from factormer.problem.objective import Objective
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem


def smooth_solve(
    G: Float[Tensor, "*b r r"], rhs: Float[Tensor, "*b n r"], mu: float
) -> Float[Tensor, "*b n r"]:
    """The X with X G + μ DᵀD X = rhs, D being the differences of rows that follow one another.

    G = QΛQᵀ makes components independent, and the cosine transform diagonalises DᵀD: what is left
    is a division by λ_c + 4μ sin²(πk/2n).
    """
    if not bool(G.isfinite().all()):  # which eigh refuses; the loop ends at what is no number
        return torch.full_like(rhs, torch.nan)
    values, Q = torch.linalg.eigh(G)
    turned = rhs @ Q
    if not mu:
        return (turned / values[..., None, :]) @ Q.mT
    from scipy.fft import dct, idct

    n = rhs.shape[-2]
    k = torch.arange(n, dtype=rhs.dtype, device=rhs.device)
    rough = 4 * mu * (torch.pi * k / (2 * n)).sin().square()
    waves = torch.from_numpy(dct(turned.cpu().numpy(), axis=-2, norm="ortho")).to(rhs)
    waves = waves / (values[..., None, :] + rough[:, None])
    return torch.from_numpy(idct(waves.cpu().numpy(), axis=-2, norm="ortho")).to(rhs) @ Q.mT


def admm_quadratic(
    normal: Normal,
    H: Float[Tensor, "*b n r"],
    U: Float[Tensor, "*b n r"],
    on: Penalties,
    *,
    n_inner: int,
) -> tuple[Float[Tensor, "*b n r"], Float[Tensor, "*b n r"]]:
    """Approximately solve min ½‖W Hᵀ − V‖² + p(H), warm-started at (H, U); ρ = tr(G)/r."""
    A, L, mu = on.quadratic(H)
    G, r = normal.WtW + A, H.shape[-1]
    rho = G.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    rho = torch.where(rho > 0, rho, torch.ones_like(rho))
    ridge = rho[..., None, None] * torch.eye(r, dtype=H.dtype, device=H.device)
    for _ in range(n_inner):
        target = normal.VtW + L + rho[..., None, None] * (H + U)
        H_free = smooth_solve(G + ridge, target, mu)  # (20)
        H = on.prox(H_free - U, 1 / rho)  # (21), of any penalty
        U = U + H - H_free  # (22), with the sign that converges
    return H, U


class Split(NamedTuple):
    """The dual of a half-step; where the loss is not quadratic, its fit, and the dual of that."""

    U: Float[Tensor, "*b n r"]
    Y: Float[Tensor, "*b m n"] | None = None
    Z: Float[Tensor, "*b m n"] | None = None

    def swap(self) -> Split:
        """The same of the transposed problem, but for U."""
        turn = [None if A is None else A.mT for A in (self.Y, self.Z)]
        return Split(self.U, *turn)


def admm_divergence(
    problem: Objective, W: Float[Tensor, "*b m r"], H: Float[Tensor, "*b n r"], split: Split,
    *, n_inner: int,
) -> tuple[Float[Tensor, "*b n r"], Split]:  # fmt: skip
    """Approximately solve min Σ ω d(V, Y) + p(H) over Y = W Hᵀ, warm-started.

    The splitting of Huang et al. (2016), section IV: ADMM on Y and H at once. Y is the proximal
    point of d, entry by entry, ρ being the mean curvature of d there; H is found as above, with
    Y + Z in place of V.
    """
    V, on, r = problem.V, problem.on_h, H.shape[-1]
    entries = V.V.entries if isinstance(V, Observed) else V.entries  # pyright: ignore
    omega = V.weights if isinstance(V, Observed) else torch.ones_like(entries)
    A, L, mu = on.quadratic(H)
    U, Y, Z = split
    fit = W @ H.mT
    Y = fit if Y is None else Y
    Z = torch.zeros_like(fit) if Z is None else Z
    G = W.mT @ W
    sigma = G.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    sigma = torch.where(sigma > torch.finfo(H.dtype).tiny ** 0.8, sigma, 1.0)  # or W is zero
    rho = 1.0
    ridge = sigma[..., None, None] * torch.eye(r, dtype=H.dtype, device=H.device)
    for _ in range(n_inner):
        target = rho * ((Y + Z).mT @ W + sigma[..., None, None] * (H + U)) + L
        H_free = smooth_solve(rho * (G + ridge) + A, target, mu)
        fit = W @ H_free.mT
        Y = torch.where(omega > 0, problem.divergence.prox(entries, fit - Z, omega / rho), fit - Z)
        H = on.prox(H_free - U, 1 / (rho * sigma))
        U, Z = U + H - H_free, Z + Y - fit
    return H, Split(U, Y, Z)


class ProximalState(NamedTuple):
    """The point and what its two half-steps carry on."""

    factors: Factors
    split_w: Split
    split_h: Split

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """Twice the objective."""
        return problem.sq_error(self.factors)


@dataclass(frozen=True)
class ProximalADMM:
    """AO-ADMM for every penalty and every loss: the solver for what others cannot do.

    Least squares without weights goes by the normal equations, sparse data too. Other losses and
    weights need a fit and its dual as large as V, which has to be dense. Not a descent method.
    """

    n_inner: int = 10

    def init(self, problem: Problem, x0: Factors) -> ProximalState:
        problem = _objective(problem)
        if not _is_quadratic(problem) and not _is_dense(problem):
            raise ValueError(
                "this loss, or these weights, with these penalties need a dense V: pass "
                "V.toarray(), or use penalties L1 and L2 alone"
            )
        W, H = problem.on_w.prox(x0.W, _one(x0.W)), problem.on_h.prox(x0.H, _one(x0.H))
        empty = (Split(torch.zeros_like(F)) for F in (W, H))
        x = Factors(W, H) if _has_sets(problem) else x0
        return ProximalState(x, *empty)

    def step(self, problem: Problem, state: ProximalState) -> ProximalState:
        problem = _objective(problem)
        (W, H), by_W, by_H = state
        if not problem.on_h.is_settled:
            H, by_H = self._half_step(problem, W, H, by_H)
        W, by_W = self._half_step(problem.T, H, W, by_W)  # the same code, by eq. 7
        return ProximalState(Factors(W, H), by_W, by_H)

    def adopt(self, problem: Problem, state: ProximalState, x: Factors) -> ProximalState:
        return state._replace(factors=x)

    def _half_step(
        self, problem: Objective, W: Tensor, H: Tensor, split: Split
    ) -> tuple[Tensor, Split]:
        if _is_quadratic(problem):
            normal = problem.V.normal(W)
            H, U = admm_quadratic(normal, H, split.U, problem.on_h, n_inner=self.n_inner)
            return H, Split(U)
        return admm_divergence(problem, W, H, split, n_inner=self.n_inner)


def _objective(problem: Problem) -> Objective:
    return problem if isinstance(problem, Objective) else Objective(problem.V, problem.rank)


def _is_quadratic(problem: Objective) -> bool:
    return problem.divergence.beta == 2 and not isinstance(problem.V, Observed)


def _is_dense(problem: Objective) -> bool:
    V = problem.V
    return isinstance(V.V if isinstance(V, Observed) else V, Dense)


def _has_sets(problem: Objective) -> bool:
    return any(t.order in (1, 3) for on in (problem.on_w, problem.on_h) for t in on.terms)


def _one(F: Tensor) -> Tensor:
    return F.new_zeros(F.shape[:-2])
