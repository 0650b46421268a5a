"""Several penalties on one factor.

The solver asks them for three things: the value, the quadratic part (which goes into the normal
equations) and the proximal step of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.problem.penalties.penalty import X_, Penalty
from factormer.problem.penalties.terms import Fixed, Orthogonal
from factormer.sentence import Option, Sentence


@dataclass(frozen=True)
class Penalties:
    """Several penalties on one factor, which is nonnegative unless `Free` or `Bounds` allow more.

    At most one set (order 1). Sums without a proximal step in closed form are refused.
    """

    terms: tuple[Penalty, ...] = ()

    @staticmethod
    def of(given: Any, name: str = "regularize") -> Penalties:
        """From none, one or several."""
        several = isinstance(given, list | tuple)
        terms = () if given is None else tuple(given) if several else (given,)
        if not terms:
            return NONE
        for term in terms:
            if not isinstance(term, Penalty):
                raise ValueError(
                    Sentence(
                        "{name} holds {term!r}; it must be of factormer.penalties: L1, L2, Group, "
                        "Smooth, Simplex, Bounds, Orthogonal, Volume, Free, Fixed",
                        name=Option(name),
                        term=term,
                    )
                )
        steps = [term for term in terms if term.order is not None and not isinstance(term, Fixed)]
        sets = [term for term in steps if term.order == 1]
        if len(sets) > 1 or len({type(term) for term in terms}) < len(terms):
            raise ValueError(
                Sentence(
                    "{name} is {terms}; at most one of each kind, and one of Simplex, Bounds, "
                    "Free: add their weights, or intersect the bounds",
                    name=Option(name),
                    terms=list(terms),
                )
            )
        alone = [step for step in steps if not step.joins]
        if alone and len(steps) > 1:
            raise ValueError(
                Sentence(
                    "{name} is {terms}; {alone} goes with L2, Smooth and Orthogonal, not with L1 "
                    "or Group, whose joint proximal step has no closed form",
                    name=Option(name),
                    terms=list(terms),
                    alone=type(alone[0]).__name__,
                )
            )
        signed = not Penalties(tuple(terms)).nonnegative
        if signed and any(isinstance(term, Orthogonal) for term in terms):
            raise ValueError(
                Sentence(
                    "{name} is {terms}; Orthogonal is for factors without negative entries, whose "
                    "products of either sign would cancel: leave out one of them",
                    name=Option(name),
                    terms=list(terms),
                )
            )
        by_rows = [term for term in terms if getattr(term, "by", "") == "rows"]
        if by_rows and len(steps) < len([term for term in terms if term.order is not None]):
            raise ValueError(
                Sentence(
                    "{name} has {term} and Fixed; a penalty on whole rows cannot leave some of "
                    "their entries fixed: take it by columns, or fix nothing",
                    name=Option(name),
                    term=by_rows[0],
                )
            )
        # A weight of 0 has no effect; one of None is found later.
        asked = [term for term in terms if getattr(term, "weight", 1.0) != 0]
        return Penalties(tuple(sorted(asked, key=lambda term: term.order or 0)))

    @property
    def nonnegative(self) -> bool:
        """Whether the factor may have no negative entry."""
        return all(term.nonnegative for term in self.terms)

    @property
    def is_plain(self) -> bool:
        """Whether X ≥ 0 is the only constraint."""
        return not self.terms

    @cached_property
    def elastic(self) -> tuple[float, float] | None:
        """The weights of L1 and L2, if there is nothing else except fixed columns; else None."""
        weights = [term.elastic for term in self.terms]
        if None in weights:
            return None
        return sum((w[0] for w in weights if w), 0.0), sum((w[1] for w in weights if w), 0.0)

    @cached_property
    def pull(self) -> Float[Tensor, "n r"] | None:
        """L of the terms −⟨L, X⟩ that L1 and L2 leave of penalties; None if there are none."""
        pulls = [term.pull for term in self.terms if term.pull is not None]
        return torch.stack(pulls).sum(dim=0) if pulls else None

    @cached_property
    def by_rows(self) -> tuple[float, float, float | None] | None:
        """The weights of L1 and L2, and the sum of rows, if rows are independent; else None."""
        if self.fixed is not None or self.pull is not None:
            return None
        sums = [term.row_sum for term in self.terms if term.row_sum is not None]
        others = Penalties(tuple(t for t in self.terms if t.row_sum is None)).elastic
        return None if others is None else (*others, sums[0] if sums else None)

    @property
    def firmness(self) -> int:
        """How far the size of the factor is fixed: 2 by a sum or bounds, 1 by known columns."""
        return max((term.firmness for term in self.terms), default=0)

    @cached_property
    def fixed(self) -> Fixed | None:
        """The columns that are known."""
        return next((term for term in self.terms if isinstance(term, Fixed)), None)

    @cached_property
    def is_settled(self) -> bool:
        """Whether all columns are known."""
        return self.fixed is not None and bool(self.fixed.at.all())

    def placed(self, X: X_) -> X_:
        """X with the known columns in their places."""
        return X if self.fixed is None else self.fixed.prox(X, X.new_zeros(1, 1))

    def value(self, X: X_) -> Float[Tensor, "*b"]:
        """The sum of all penalties."""
        total = X.new_zeros(X.shape[:-2])
        for term in self.terms:
            total = total + term.value(X)
        return total

    def prox(self, X: X_, t: Float[Tensor, "*b"]) -> X_:
        """The proximal step of all that is not quadratic, nonnegativity included."""
        t, bounded = t[..., None, None], False
        for term in self.terms:
            if term.order is None:
                continue
            if term.order >= 2 and not bounded:
                X, bounded = X.clamp(min=0), True
            X = term.prox(X, t)
            bounded |= term.order == 1
        return X if bounded else X.clamp(min=0)

    def inside(self, X: X_) -> X_:
        """X projected onto its set; rows with a given sum are scaled, and nothing becomes zero."""
        for term in self.terms:
            X = term.stretched(X)
        return self.prox(X, X.new_zeros(X.shape[:-2]))

    def quadratic(self, X: X_) -> tuple[Float[Tensor, "... r r"], X_ | float, float]:
        """(A, L, μ) such that ½⟨X A, X⟩ − ⟨L, X⟩ + ½μΣ‖Xᵢ₊₁ − Xᵢ‖² bounds the quadratic penalties.

        From above, up to a constant, and with equality at the X that is given.
        """
        r = X.shape[-1]
        A, L, mu = torch.zeros(r, r, dtype=X.dtype, device=X.device), 0.0, 0.0
        for term in self.terms:
            a, b, rough = term.quadratic(X)
            A, L, mu = A + a, L + b, mu + rough
        return A, L, mu

    def step(self, X: X_, gradient: X_, G: Float[Tensor, "*b r r"]) -> X_:
        """Return what a proximal gradient step would change, over its length.

        `gradient` is that of the misfit, and the trace of G is at least its curvature.
        """
        A, L, mu = self.quadratic(X)
        gradient = gradient + X @ A - L
        if mu:
            rough = X.diff(dim=-2)
            gradient[..., 1:, :] += mu * rough
            gradient[..., :-1, :] -= mu * rough
        size = (G + A).diagonal(dim1=-2, dim2=-1).sum(dim=-1) + 4 * mu
        t = 1 / size.clamp(min=torch.finfo(X.dtype).tiny)
        return (X - self.prox(X - t[..., None, None] * gradient, t)) / t[..., None, None]

    def scaled(
        self,
        c: float,
        power: float,
        p: float = 0.5,
        level: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> Penalties:
        """The penalties on a factor divided by cᵖ, as `Penalty.scaled`; all within `dtype`."""
        with np.errstate(over="ignore", under="ignore"):
            terms = tuple(term.scaled(c, power, p, level) for term in self.terms)
        for given, term in zip(self.terms, terms, strict=True):
            if not term.fits(dtype):
                name = "Fixed" if isinstance(given, Fixed) else str(given)
                raise ValueError(
                    Sentence(
                        "{name} is too large or too small for V of mean {c:g}: its squares, in the "
                        "unit of V, are beyond {dtype}; choose another, or {pass V in float64} and "
                        "divided by its mean",
                        name=name,
                        c=c,
                        dtype=dtype,
                    )
                )
        return Penalties(terms)


NONE = Penalties()  # one object, so that what it keeps is computed once
