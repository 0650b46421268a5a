"""AO-ADMM with penalties, constraints and other losses, by proximal steps (Huang et al., 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer import kernels
from factormer.data import Dense, Normal, Observed
from factormer.data.factors import Factors
from factormer.kernels.threads import scratch, share
from factormer.problem.loss import Loss, floored
from factormer.problem.penalties import Penalties
from factormer.problem.problem import Problem
from factormer.sentence import Sentence

_ENTRY = 50  # multiplications that take as long as a proximal step on an entry


def smooth_solver(
    G: Float[Tensor, "*b r r"], mu: float
) -> Callable[[Float[Tensor, "*b n r"]], Float[Tensor, "*b n r"]]:
    """From rhs to the X with X G + μ DᵀD X = rhs, D the differences of rows next to each other.

    G = QΛQᵀ makes components independent, and the cosine transform diagonalises DᵀD: what remains
    is a division by λ_c + 4μ sin²(πk/2n). Without μ it is a product with the inverse of G, whose
    ridge keeps it well conditioned. What depends only on G is done once, in float64.
    """
    L, failed = torch.linalg.cholesky_ex(G.double())
    if not bool(G.isfinite().all()) or (not mu and bool(failed.any())):
        return lambda rhs: torch.full_like(rhs, torch.nan)  # which ends the loop
    if not mu:
        inverse = torch.cholesky_inverse(L)
        return lambda rhs: rhs @ inverse.to(rhs)
    values, Q = (part.to(G) for part in torch.linalg.eigh(G.double()))

    def solve(rhs: Float[Tensor, "*b n r"]) -> Float[Tensor, "*b n r"]:
        from scipy.fft import dct, idct

        n = rhs.shape[-2]
        k = torch.arange(n, dtype=rhs.dtype, device=rhs.device)
        rough = 4 * mu * (torch.pi * k / (2 * n)).sin().square()
        waves = torch.from_numpy(dct((rhs @ Q).cpu().numpy(), axis=-2, norm="ortho")).to(rhs)
        waves = waves / (values[..., None, :] + rough[:, None])
        return torch.from_numpy(idct(waves.cpu().numpy(), axis=-2, norm="ortho")).to(rhs) @ Q.mT

    return solve


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
    if found := _by_rows(normal, G + ridge, rho, H, U, on, n_inner):
        return found
    freed = smooth_solver(G + ridge, mu)
    for _ in range(n_inner):
        H_free = freed(normal.VtW + L + rho[..., None, None] * (H + U))  # (20)
        H = on.prox(H_free - U, 1 / rho)  # (21), of any penalty
        U = U + H - H_free  # (22), with the sign that converges
    return H, U


def _by_rows(
    normal: Normal,
    G: Float[Tensor, "*b r r"],
    rho: Float[Tensor, "*b"],
    H: Float[Tensor, "*b n r"],
    U: Float[Tensor, "*b n r"],
    on: Penalties,
    n_inner: int,
) -> tuple[Float[Tensor, "n r"], Float[Tensor, "n r"]] | None:
    """Make the steps in compiled code where rows are independent: shares by rows, L1 and L2."""
    is_one = H.dim() == 2 and H.device.type == "cpu" and not torch.is_grad_enabled()
    if not is_one or on.by_rows is None:
        return None
    dtype, (l1, _, total) = kernels.real(H.dtype), on.by_rows
    compiled = kernels.admm_rows("steps", dtype)
    L, failed = torch.linalg.cholesky_ex(G.double())
    if compiled is None or bool(failed) or not bool(G.isfinite().all()):
        return None
    inverse = torch.cholesky_inverse(L)
    F = (normal.VtW @ inverse.to(H)).mT.contiguous().numpy()
    P = (rho * inverse).to(H.dtype).contiguous().numpy()
    made = [A.mT.clone(memory_format=torch.contiguous_format) for A in (H, U)]
    (r, n), numbers = F.shape, (n_inner, l1 / float(rho), total or 0.0)
    kernel, arrays = compiled.steps(dtype), [A.numpy() for A in made]

    def some(start: int, stop: int) -> None:
        kernel(F, P, *arrays, *numbers, *scratch(compiled.room_for_rows, r, dtype), start, stop)

    share(some, n, work=2 * n_inner * r * r * n)
    return made[0].mT, made[1].mT


class Split(NamedTuple):
    """The dual of a half-step; where the loss is not quadratic, its fit, and the dual of that."""

    U: Float[Tensor, "*b n r"]
    Y: Float[Tensor, "*b m n"] | None = None
    Z: Float[Tensor, "*b m n"] | None = None

    def swap(self) -> Split:
        """Return the split of the transposed problem, but for U."""
        turn = [None if A is None else A.mT for A in (self.Y, self.Z)]
        return Split(self.U, *turn)


def admm_divergence(
    problem: Problem, W: Float[Tensor, "*b m r"], H: Float[Tensor, "*b n r"], split: Split,
    *, n_inner: int,
) -> tuple[Float[Tensor, "*b n r"], Split]:  # fmt: skip
    """Approximately solve min Σ ω d(V, Y) + p(H) over Y = W Hᵀ, warm-started.

    The splitting of Huang et al. (2016), section IV: ADMM on Y and H at once. Y is the proximal
    point of d, entry by entry, for ρ = 1; H is found as above, with Y + Z in place of V.
    """
    on, entrywise = problem.on_h, _Entrywise.of(problem)
    A, L, mu = on.quadratic(H)
    U, Y, Z = split
    Y = W @ H.mT if Y is None else Y.clone()  # which is overwritten
    Z = torch.zeros_like(Y) if Z is None else Z.clone()
    G, identity = W.mT @ W, torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
    sigma = G.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    info, most = torch.finfo(H.dtype), float(A.diagonal().mean())
    sigma = sigma.clamp(min=info.eps**0.5 * most)  # otherwise it is lost in the sum with A
    sigma = torch.where(sigma > info.tiny**0.8, sigma, 1.0)  # otherwise W is zero
    freed = smooth_solver(G + sigma[..., None, None] * identity + A, mu)
    for _ in range(n_inner):
        H_free = freed((Y + Z).mT @ W + sigma[..., None, None] * (H + U) + L)
        Y, Z = entrywise(W @ H_free.mT, Y, Z)
        H = on.prox(H_free - U, 1 / sigma)
        U = U + H - H_free
    return H, Split(U, Y, Z)


class _Entrywise(NamedTuple):
    """The step on Y, the proximal point of the loss, and its dual Z; in place, or not."""

    loss: Loss
    values: Float[Tensor, "*b m n"]
    weights: Float[Tensor, "*b m n"]

    @staticmethod
    def of(problem: Problem) -> _Entrywise:
        V = problem.V
        values = V.V.entries if isinstance(V, Observed) else V.entries  # pyright: ignore
        weights = V.weights if isinstance(V, Observed) else torch.ones_like(values)
        return _Entrywise(problem.loss, values.contiguous(), weights.contiguous())

    def __call__(self, fit: Tensor, Y: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        compiled, beta = None, self.loss.kernel_beta
        if beta is not None and fit.device.type == "cpu" and not fit.requires_grad:
            compiled = kernels.proximal_entries("entries", kernels.real(fit.dtype))
        if compiled is None:
            x, d = fit - Z, self.loss
            Y = torch.where(self.weights > 0, d.prox(self.values, x, self.weights, near=Y), x)
            return Y, Y - x
        flat = [F.view(-1).numpy() for F in (self.values, self.weights, fit, Y, Z)]
        kernel, least = compiled.entries(flat[0].dtype), float(floored(fit.new_zeros(())))

        def some(start: int, stop: int) -> None:
            kernel(*flat, start, stop, beta, least)

        share(some, fit.numel(), work=_ENTRY * fit.numel())
        return Y, Z


class ProximalState(NamedTuple):
    """The point and the duals of its two half-steps."""

    factors: Factors
    split_w: Split
    split_h: Split

    def sq_error(self, problem: Problem) -> Float[Tensor, "*b"]:
        """Twice the objective."""
        return problem.sq_error(self.factors)


@dataclass(frozen=True)
class ProximalADMM:
    """AO-ADMM for every penalty and every loss: the solver for what others cannot do.

    Least squares without weights uses the normal equations, also for sparse data. Other losses and
    weights need a fit and its dual as large as V, which has to be dense. Not a descent method.
    """

    n_inner: int = 10

    def init(self, problem: Problem, x0: Factors) -> ProximalState:
        if not problem.is_quadratic and not _is_dense(problem):
            raise ValueError(
                Sentence(
                    "this loss, or these weights, with these penalties need a dense V: "
                    "{pass V.toarray()}, or use only the penalties L1 and L2"
                )
            )
        W, H = problem.on_w.inside(x0.W), problem.on_h.inside(x0.H)
        empty = (Split(torch.zeros_like(F)) for F in (W, H))
        x = Factors(W, H) if _has_sets(problem) else x0
        return ProximalState(x, *empty)

    def step(self, problem: Problem, state: ProximalState) -> ProximalState:
        (W, H), by_W, by_H = state
        if not problem.on_h.is_settled:
            H, by_H = self._half_step(problem, W, H, by_H)
        W, by_W = self._half_step(problem.T, H, W, by_W)  # the same code, by eq. 7
        return ProximalState(Factors(W, H), by_W, by_H)

    def adopt(self, problem: Problem, state: ProximalState, x: Factors) -> ProximalState:
        return state._replace(factors=x)

    def _half_step(
        self, problem: Problem, W: Tensor, H: Tensor, split: Split
    ) -> tuple[Tensor, Split]:
        if problem.is_quadratic:
            normal = problem.V.normal(W)
            H, U = admm_quadratic(normal, H, split.U, problem.on_h, n_inner=self.n_inner)
            return H, Split(U)
        return admm_divergence(problem, W, H, split, n_inner=self.n_inner)


def _is_dense(problem: Problem) -> bool:
    V = problem.V
    return isinstance(V.V if isinstance(V, Observed) else V, Dense)


def _has_sets(problem: Problem) -> bool:
    return any(t.order in (1, 3) for on in (problem.on_w, problem.on_h) for t in on.terms)
