"""How the variance of noise depends on the size of an entry, and V balanced for it."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from factormer.data import Dense
from factormer.select.ranks.spectrum import FLOOR, Spectrum, decomposed
from factormer.select.ranks.view import View, balanced, scales

_BINS = 16  # of fitted entries, by size, each with as many
_ABOVE = 1.12  # times the noise, from which a singular value counts as one of the data
_ROUNDS = 4  # of weighting the bins by what was fitted


class Noise(NamedTuple):
    """The variance a + b·μ + c·μ² of an entry of mean μ, where the mean of all is 1.

    Noise that is everywhere the same has only a, counts b, overdispersed counts b and c, noise in
    proportion c. `components` is the number of components that μ was taken from.
    """

    a: float
    b: float
    c: float
    components: int

    @property
    def power(self) -> int:
        """The power of μ that most of the variance at μ = 1 has."""
        parts = (self.a, self.b, self.c)
        return max(range(3), key=parts.__getitem__)


def noise_of(view: View, counts: Spectrum) -> Noise:
    """Fitted to the squared residual of as many components as stand out; `counts` is the spectrum
    of V balanced for counts.
    """
    X = view.block.double()
    above = (counts.values > _ABOVE * counts.noise).long()
    q = int(above.cumprod(0).sum().clamp(min=1))
    q = min(q, *(size - 1 for size in X.shape))
    mean = _fitted(X, q)
    (m, n), q = X.shape, max(q, 1)
    squares = (X - mean).square() * (m * n / ((m - q) * (n - q)))
    a, b, c = _quadratic(mean.flatten(), squares.flatten())
    return Noise(a, b, c, q)


def adapted(view: View, noise: Noise) -> View:
    """V balanced for that noise; where V is large, for the power that is nearest."""
    if not view.is_small:
        return balanced(view, noise.power)
    X = view.block.double()
    mean = _fitted(X, noise.components)
    variance = noise.a + noise.b * mean + noise.c * mean.square()
    variance = variance.clamp(min=max(float(variance.mean()) * 1e-3, FLOOR**2))
    u, v = scales(variance)
    whole = Dense(X * u.sqrt()[:, None] * v.sqrt())
    return view._replace(whole=whole, block=whole.entries)


def _fitted(X: Float[Tensor, "m n"], q: int) -> Float[Tensor, "m n"]:
    """X by its first q singular parts, positive."""
    U, S, Z = decomposed(X, q)
    return ((U[:, :q] * S[:q]) @ Z[:, :q].mT).clamp(min=1e-3)


def _quadratic(mean: Float[Tensor, "k"], squares: Float[Tensor, "k"]) -> tuple[float, float, float]:
    """a, b, c ≥ 0 of the variance, by least squares of relative errors over bins."""
    order = mean.argsort()
    mu, var = (
        torch.stack([part.mean() for part in x[order].tensor_split(_BINS) if len(part)])
        for x in (mean, squares)
    )
    columns = torch.stack([torch.ones_like(mu), mu, mu.square()], 1)  # (bins, 3)
    weight = 1 / var.clamp(min=FLOOR**2)
    best = torch.zeros(3, dtype=mu.dtype)
    for _ in range(_ROUNDS):
        best = _nonnegative(columns * weight[:, None], var * weight)
        weight = 1 / (columns @ best).clamp(min=FLOOR**2)
    a, b, c = best.tolist()
    return a, b, c


def _nonnegative(A: Float[Tensor, "k 3"], y: Float[Tensor, "k"]) -> Float[Tensor, "3"]:
    """The x ≥ 0 with the least ‖A x − y‖: the best of all sets of columns."""
    best, least = torch.zeros(3, dtype=A.dtype), float(y.square().sum())
    for size in (1, 2, 3):
        for some in combinations(range(3), size):
            part = A[:, list(some)]
            gram = part.mT @ part + 1e-12 * torch.eye(size, dtype=A.dtype)
            x = torch.linalg.solve(gram, part.mT @ y)
            error = float((part @ x - y).square().sum())
            if bool((x >= 0).all()) and error < least * (1 - 1e-9):
                best, least = torch.zeros(3, dtype=A.dtype), error
                best[list(some)] = x
    return best
