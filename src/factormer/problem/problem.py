"""The optimisation problem: V, a rank, a loss and penalties."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Blocks, Matrix, Normal, Observed, n_entries, turned
from factormer.data.blocks import Turned
from factormer.data.entries import Entries
from factormer.data.factors import Factors
from factormer.data.spread import Spread
from factormer.problem.arrays import slope
from factormer.problem.entrywise import EntryByEntry
from factormer.problem.loss import Loss
from factormer.problem.losses import FROBENIUS
from factormer.problem.passes import FromPasses
from factormer.problem.penalties import NONE, Penalties
from factormer.problem.products import FromProducts
from factormer.sentence import Sentence


@dataclass(frozen=True, eq=False)
class Problem:
    """min Σ ω d(V, W Hᵀ) + p(W) + q(H), for one matrix or for each of a stack.

    d is the loss, p and q are penalties. Entries of V have equal weights, or ω (`Observed`).
    Factors are nonnegative unless penalties say otherwise. The plainest case is min ½‖W Hᵀ − V‖²
    over W ≥ 0, H ≥ 0 (eq. 2). `resolved` is for the errors of `FromProducts`.
    """

    V: Matrix
    rank: int
    loss: Loss = FROBENIUS
    on_w: Penalties = NONE
    on_h: Penalties = NONE
    resolved: bool | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(
                Sentence(
                    "{rank} is {given}; it must be a whole number of at least 1", given=self.rank
                )
            )

    @property
    def T(self) -> Problem:
        """The transposed problem Vᵀ ≈ H Wᵀ: the same objective at the swapped point (eq. 7)."""
        return turned(self, lambda: replace(self, V=self.V.T, on_w=self.on_h, on_h=self.on_w))

    @property
    def is_quadratic(self) -> bool:
        """Whether the misfit is the squared error of all entries: normal equations suffice."""
        return self.loss.is_quadratic and not isinstance(self.V, Observed)

    @property
    def is_free(self) -> bool:
        """Whether W ≥ 0, H ≥ 0 are the only constraints."""
        return self.on_w.is_plain and self.on_h.is_plain

    @property
    def is_plain(self) -> bool:
        """Whether it is plain nonnegative least squares."""
        return self.is_quadratic and self.is_free

    @property
    def measure(self) -> str:
        """Return the name of the number that is minimised, or that stands for it."""
        if self.on_w.terms or self.on_h.terms:
            return "objective"
        return "RMSE" if self.loss.is_quadratic else self.loss.title

    @property
    def is_elastic(self) -> bool:
        """Whether penalties are only L1 and L2, besides known columns."""
        return self.on_w.elastic is not None and self.on_h.elastic is not None

    @cached_property
    def misfit(self) -> FromProducts | EntryByEntry | FromPasses:
        """Σ ω d(V, W Hᵀ) and its gradient: the only place that chooses how to compute them."""
        if self.is_quadratic:
            return FromProducts(self.V, self.resolved)
        if isinstance(self.V, Blocks | Turned):
            return FromPasses(self.V, self.loss)
        return EntryByEntry(self.V, self.loss)

    @cached_property
    def entries(self) -> Entries:
        """The entries of V by rows, for compiled loops."""
        return Entries.of(self.V)

    def size(self) -> Float[Tensor, "*b"]:
        """The number of entries that count."""
        return self.V.count() if isinstance(self.V, Observed) else n_entries(self.V)

    def mean(self) -> Float[Tensor, "*b"]:
        """The mean entry of each matrix."""
        return (self.V.total() / self.size()).to(self.V.dtype)

    def objective(self, x: Factors) -> Float[Tensor, "*b"]:
        """Return the value to be minimised: ½‖W Hᵀ − V‖² in the plainest case (eqs. 2 and 7)."""
        value = self.misfit.value(x)
        return value if self.is_free else value.double() + self._penalty(x)

    def sq_error(self, x: Factors, known: Normal | None = None) -> Float[Tensor, "*b"]:
        """Twice the objective, in float64, at little cost if (VH, HᵀH) of x are `known`.

        ‖W Hᵀ − V‖² in the plainest case.
        """
        error = self.misfit.sq_error(x, known)
        return error if self.is_free else error + 2 * self._penalty(x)

    def rmse(self, x: Factors) -> Float[Tensor, "*b"]:
        """√(2·objective / entries): ‖W Hᵀ − V‖ / √(mn) in the plainest case (eq. 23)."""
        return (2 * self.objective(x) / self.size()).sqrt()

    def blurred(self) -> Float[Tensor, "*b"]:
        """The rmse up to which `sq_error` lacks digits that a report should have."""
        return self.misfit.blurred()

    def stationarity(self, x: Factors) -> Float[Tensor, "*b"]:
        """Norm of the change by a proximal gradient step, over its length: 0 at a solution.

        With no penalties but X ≥ 0, L1 and L2 this is the projected gradient: where X is zero, only
        the negative part of the gradient counts.
        """
        if self.is_plain and (norm := slope(self.V, x)) is not None:
            return norm
        by_H = self._step(x)
        if isinstance(self.V, Spread) or isinstance(self.misfit, FromPasses):  # which has summed it
            by_W = self.V.slope(x) if self.is_quadratic else self.misfit.slope(x)  # pyright: ignore
            return (by_H.double().square().sum() + by_W).sqrt()
        by_W = self.T._step(x.swap())
        return (by_H.square().sum(dim=(-2, -1)) + by_W.square().sum(dim=(-2, -1))).sqrt()

    def normalized(self) -> tuple[Problem, Float[Tensor, "*b"]]:
        """The problem of V / c, c the mean of V, with weights of mean 1; and c.

        As in the paper. Errors are those of this problem over `unit(c)`. A matrix of zeros is left
        as it is, with 1 in place of its mean; so is a stack whose penalties or loss would have to
        differ between members.
        """
        mean = self.mean()
        mean = torch.where(self.V.total() > 0, mean, torch.ones_like(mean))
        if self._is_rigid:
            mean = torch.ones_like(mean)
        V, level = self.V.scaled(mean.reciprocal()), self._level
        V = V.weighted(1 / level) if isinstance(V, Observed) else V
        if self._is_unitless:
            return replace(self, V=V), mean
        c, omega = (1.0 if number.dim() else float(number) for number in (mean, level))
        power, p, dtype = self.loss.degree, self._share, self.V.dtype
        on_w = self.on_w.scaled(c, power, p, omega, dtype)
        on_h = self.on_h.scaled(c, power, 1 - p, omega, dtype)
        return replace(self, V=V, loss=self.loss.scaled(c), on_w=on_w, on_h=on_h), mean

    def unit(self, mean: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        """The factor from errors of the problem of V / mean to errors of this one."""
        unit = mean.double() ** (self.loss.degree / 2)
        return unit * self._level.sqrt() if isinstance(self.V, Observed) else unit

    def scaled_back(self, x: Factors, c: Float[Tensor, "*b"]) -> Factors:
        """The point of the problem of c·V that corresponds to x."""
        p = self._share
        if p == 0.5:
            return x.scale(c)
        c = c.to(x.W)[..., None, None]
        return Factors(x.W * c**p, x.H * c ** (1 - p))

    def taken(self, x: Factors) -> Factors:
        """The point in the precision of V, with known columns in place."""
        dtype = self.V.dtype
        if self.is_free and x.W.dtype == x.H.dtype == dtype:
            return x
        return Factors(self.on_w.placed(x.W.to(dtype)), self.on_h.placed(x.H.to(dtype)))

    def start(self) -> Problem:
        """The plain problem that starts are made for."""
        V = self.V
        return Problem(V.filled if isinstance(V, Observed) else V, self.rank)

    @property
    def _is_unitless(self) -> bool:
        """Whether neither loss nor penalties change with the unit of V."""
        return self.is_free and not self.loss.has_unit

    @property
    def _is_rigid(self) -> bool:
        """Whether this is a stack whose members cannot have units of their own."""
        return len(self.V.shape) > 2 and not self._is_unitless

    @property
    def _level(self) -> Float[Tensor, "*b"]:
        """The mean of the weights."""
        V = self.V
        if not isinstance(V, Observed) or self._is_rigid:
            return torch.ones(V.shape[:-2], dtype=torch.float64, device=V.device)
        return V.level()

    @property
    def _share(self) -> float:
        """The p such that when V is scaled by c, W is scaled by cᵖ and H by the rest.

        Both by √c, unless penalties fix the size of one of them.
        """
        on_w, on_h = self.on_w.firmness, self.on_h.firmness
        return 0.5 if on_w == on_h else float(on_w < on_h)

    def _penalty(self, x: Factors) -> Float[Tensor, "*b"]:
        return self.on_w.value(x.W).double() + self.on_h.value(x.H).double()

    def _step(self, x: Factors) -> Float[Tensor, "*b n r"]:
        gradient, H, on = self.misfit.gradient(x), x.H, self.on_h
        if on.elastic is None:
            return on.step(H, gradient, x.W.mT @ x.W)
        l1, l2 = on.elastic
        if l1 or l2:
            gradient = gradient + l1 + l2 * H
        if on.pull is not None:
            gradient = gradient - on.pull
        gradient = torch.where(H > 0, gradient, gradient.clamp(max=0))
        return gradient if on.fixed is None else gradient * ~on.fixed.at.to(H.device)
