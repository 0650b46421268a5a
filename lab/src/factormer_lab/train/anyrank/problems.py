"""A broad mixture of matrices and starts, drawn in stacks of equal shape.

Drawn where they are used, so that a GPU does not wait: random numbers differ between kinds of
device. Shapes: b matrices, m rows, n columns, r rank, k true rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.data.svd import OVERSAMPLING
from factormer.problem.loss import Loss
from factormer.problem.losses import FROBENIUS
from factormer.problem.problem import Problem
from factormer.starts import Random
from factormer.starts.nndsvd import nndsvd

KINDS = (
    *("exponential", "gamma", "lognormal", "sparse", "separable", "smooth", "uneven", "counts"),
    *("noise", "spectrum"),
)
STARTS = ("rotated", "random", "nndsvd")
Shape = tuple[int, int, int]  # m, n, r
_RANKS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 64, 80, 100)
_PLAIN = ("exponential", "gamma", "lognormal", "sparse", "smooth")
_COMPRESSED = 0.35  # share of matrices that are replaced by their truncated SVD
_START_SHARES = (0.6, 0.25, 0.15)


@dataclass(frozen=True)
class Bucket:
    """Problems of one shape with their starts; kinds and starts are places in lists of names."""

    V: Float[Tensor, "b m n"]
    x0: Factors
    rank: int
    kinds: Int[Tensor, " b"]
    starts: Int[Tensor, " b"]
    loss: Loss = FROBENIUS

    def problem(self, index: Tensor | slice) -> Problem:
        """Some of the problems as one stack."""
        return self.of(self.V[index])

    def of(self, V: Float[Tensor, "b m n"]) -> Problem:
        """Return the problem for other matrices."""
        return Problem(Dense(V), self.rank, self.loss)

    def start(self, index: Tensor | slice) -> Factors:
        """Return the starts of the matrices."""
        return Factors(self.x0.W[index], self.x0.H[index])


@runtime_checkable
class Source(Protocol):
    """A source of matrices, a stack of equal shape at a time."""

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds of matrices there are."""
        ...

    def fitting(self, shape: Shape) -> Shape:
        """The shape (m, n, r), or the largest below it that there can be."""
        ...

    def draw(self, shape: Shape, per_kind: int, rng: torch.Generator) -> Float[Tensor, "b m n"]:
        """`per_kind` matrices of each kind, kind by kind, each of mean square 1."""
        ...


@dataclass(frozen=True)
class Synthetic:
    """The broad mixture: matrices of every kind."""

    names: tuple[str, ...] = KINDS

    def fitting(self, shape: Shape) -> Shape:
        return shape

    def draw(self, shape: Shape, per_kind: int, rng: torch.Generator) -> Float[Tensor, "b m n"]:
        halves = [per_kind - per_kind // 2, per_kind // 2]
        stacks = [matrices(kind, b, *shape, rng) for kind in self.names for b in halves if b]
        return torch.cat(stacks).nan_to_num()


SYNTHETIC = Synthetic()


def draw_bucket(
    shape: Shape, per_kind: int, rng: torch.Generator, source: Source = SYNTHETIC
) -> Bucket:
    """`per_kind` matrices of every kind in random order, with starts."""
    m, n, r = shape
    V = source.draw(shape, per_kind, rng)
    kinds = torch.arange(len(source.names), device=V.device).repeat_interleave(per_kind)
    order = torch.randperm(len(V), generator=rng, device=V.device)
    V, kinds = V[order].contiguous(), kinds[order]
    U, S, Z = leading_svd(V, min(r + OVERSAMPLING, m, n), rng)
    chosen = torch.rand(len(V), 1, 1, generator=rng, device=V.device) < _COMPRESSED
    V = torch.where(chosen, (U * S[:, None]) @ Z.mT, V.double()).float()
    x0, starts = _starts(V, U[..., :r], S[:, :r], Z[..., :r], rng)
    return Bucket(V, x0, r, kinds, starts)


def matrices(
    kind: str, b: int, m: int, n: int, r: int, rng: torch.Generator
) -> Float[Tensor, "b m n"]:
    """A stack of matrices of one kind; about half of them with noise, cut off at zero.

    Half have the rank that they are factorized to, others more or less. "noise" is full rank by its
    nature, and "spectrum" a sum of very many components of falling strength, as in pictures.
    """
    k = true_rank(r, rng)
    if kind == "noise":
        V = _gamma((b, m, n), _uniform(b, 0.3, 2.0, rng), rng)
        V = V + _uniform(b, 0.0, 2.0, rng) * factor("exponential", b, m, r, rng) @ (
            factor("exponential", b, n, r, rng).mT / r
        )
    elif kind == "spectrum":
        k = min(m, n, 3 * r + 20)
        other = _one_of(_PLAIN, rng)
        fall = torch.arange(1, k + 1, device=rng.device) ** -_uniform(b, 0.5, 2.0, rng)
        V = (factor(other, b, m, k, rng) * fall) @ factor(_one_of(_PLAIN, rng), b, n, k, rng).mT
    else:
        alike = kind in ("uneven", "counts") or (kind != "separable" and _chance(rng) < 0.7)
        other = kind if alike else _one_of(_PLAIN, rng)
        V = factor(other, b, m, k, rng) @ factor(kind, b, n, k, rng).mT
    if kind == "counts":
        mean = torch.exp(_uniform(b, math.log(0.3), math.log(30.0), rng))
        V = torch.poisson(V / V.mean(dim=(1, 2), keepdim=True) * mean, generator=rng) + 1e-6
    V = _unit(V)
    if kind not in ("counts", "noise"):
        size = 10 ** _uniform(b, -3.0, -0.7, rng) * (_uniform(b, 0.0, 1.0, rng) < 0.5)
        V = (V + size * _normal((b, m, n), rng)).clamp(min=0)
    return _unit(V)


def draw_shape(number: int, ranks: tuple[int, int], max_size: int, rng: torch.Generator) -> Shape:
    """(m, n, r) of a bucket: ranks in turn, sizes log-uniform, every fourth matrix longer."""
    least, most = ranks
    among = [r for r in _RANKS if least <= r <= most] or [most]
    r = among[number % len(among)]
    low, high = max(12, math.ceil(1.3 * r)), max(max_size, 4 * r)
    m, n = (round(low * (high / low) ** _chance(rng)) for _ in range(2))
    return (3 * m if number % 4 == 3 else m, n, r)


# Factors


def factor(kind: str, b: int, n: int, k: int, rng: torch.Generator) -> Float[Tensor, "b n k"]:
    """A stack of factors of one kind."""
    shape = (b, n, k)
    if kind == "gamma":
        return _gamma(shape, _uniform(b, 0.2, 2.0, rng), rng)
    if kind == "lognormal":
        return torch.exp(_normal(shape, rng) * _uniform(b, 0.5, 1.5, rng))
    if kind == "separable":
        X = _gamma(shape, _uniform(b, 0.2, 1.0, rng), rng)
        X = X / (X.sum(dim=-1, keepdim=True) + 1e-9)
        pure = min(n, k)
        X[:, :pure] = torch.eye(k, device=rng.device)[:pure]
        return X
    if kind == "smooth":
        t = torch.linspace(0, 1, n, device=rng.device)[None, :, None]
        bumps = []
        for _ in range(3):
            centre, height, width = (_rand((b, 1, k), rng) for _ in range(3))
            bumps.append(height * torch.exp(-0.5 * ((t - centre) / (0.02 + 0.23 * width)) ** 2))
        return sum(bumps) + _uniform(b, 0.0, 0.2, rng)
    X = torch.empty(shape, device=rng.device).exponential_(generator=rng)
    if kind == "sparse":
        return X * (_rand(shape, rng) < _uniform(b, 0.1, 1.0, rng)) + 1e-9
    if kind == "uneven":
        rows = torch.exp(_normal((b, n, 1), rng) * _uniform(b, 0.3, 1.0, rng))
        return X * rows * torch.exp(_normal((b, 1, k), rng) * _uniform(b, 0.3, 1.0, rng))
    return X


def true_rank(r: int, rng: torch.Generator) -> int:
    """How many components a matrix has that is to be factorized to rank r."""
    u = _chance(rng)
    if u < 0.55:
        return r
    return int(r * (1.1 + 1.4 * _chance(rng))) + 1 if u < 0.85 else max(1, r // 2)


# Starts


def leading_svd(
    V: Float[Tensor, "b m n"], k: int, rng: torch.Generator
) -> tuple[Float[Tensor, "b m k"], Float[Tensor, "b k"], Float[Tensor, "b n k"]]:
    """The leading k singular triplets of each matrix, by subspace iteration in float64."""
    V = V.double()
    Y = V @ _normal((V.shape[0], V.shape[2], k), rng).double()
    for _ in range(4):
        Y = _orthonormal(V @ (V.mT @ _orthonormal(Y)))
    C = Y.mT @ V
    squares, E = torch.linalg.eigh(C @ C.mT)  # ascending
    S, E = squares.flip(-1).clamp(min=1e-20).sqrt(), E.flip(-1)
    return Y @ E, S, C.mT @ E / S[:, None]


def _orthonormal(Y: Float[Tensor, "b m k"]) -> Float[Tensor, "b m k"]:
    """By Cholesky factors of the Gram matrix, twice: batched, unlike a QR decomposition."""
    identity = torch.eye(Y.shape[-1], dtype=Y.dtype, device=Y.device)
    for _ in range(2):
        G = Y.mT @ Y
        ridge = 1e-11 * G.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None] + 1e-30
        L = torch.linalg.cholesky_ex(G + ridge * identity)[0]
        Y = torch.linalg.solve_triangular(L, Y.mT, upper=False).mT
    return Y


def _starts(
    V: Float[Tensor, "b m n"], U: Tensor, S: Tensor, Z: Tensor, rng: torch.Generator
) -> tuple[Factors, Int[Tensor, " b"]]:
    """One of the starts for each; a random one where another is no number."""
    problem = Problem(Dense(V), U.shape[-1])
    root = S.sqrt()[:, None]
    X = torch.cat([U * root, Z * root], dim=1).nan_to_num()
    X = (X @ _rotation(X, rng)).clamp(min=0)
    rotated = Factors(*X.split([U.shape[1], Z.shape[1]], dim=1))
    options = [rotated, Random()(problem, rng), nndsvd(U, S, Z)]
    shares = torch.tensor(_START_SHARES, device=V.device)
    chosen = torch.multinomial(shares, len(V), replacement=True, generator=rng)
    sound = [_is_sound(x) for x in options]
    chosen = torch.where(torch.stack(sound, dim=1).gather(1, chosen[:, None])[:, 0], chosen, 1)
    points = []
    for F in zip(*options, strict=True):
        stack = torch.stack([f.to(V.dtype) for f in F], dim=1)  # (b, 3, m, r)
        points.append(stack[torch.arange(len(V), device=V.device), chosen].contiguous())
    return Factors(*points), chosen


def _rotation(X: Float[Tensor, "b k r"], rng: torch.Generator) -> Float[Tensor, "b r r"]:
    """As `initialize.rotation`, with a polar factor that is made of products alone: batched."""
    r = X.shape[-1]
    R = torch.linalg.qr(_normal((r, r), rng).double()).Q.expand(len(X), r, r)
    for _ in range(30):
        Y = X @ R
        M = X.mT @ torch.sub(Y, Y.clamp(max=0), alpha=3.0) + 1e-9 * R
        R = M / M.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30)
        for _ in range(20):
            R = 1.5 * R - 0.5 * R @ (R.mT @ R)
    return R


def _is_sound(x: Factors) -> Tensor:
    finite = [F.isfinite().all(dim=2).all(dim=1) & (F.sum(dim=(1, 2)) > 0) for F in x]
    return finite[0] & finite[1]


# Random numbers


def _unit(V: Float[Tensor, "b m n"]) -> Float[Tensor, "b m n"]:
    return V / V.square().mean(dim=(1, 2), keepdim=True).sqrt().clamp(min=1e-6)


def _rand(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=rng, device=rng.device)


def _normal(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=rng, device=rng.device)


def _uniform(b: int, low: float, high: float, rng: torch.Generator) -> Float[Tensor, "b 1 1"]:
    return low + (high - low) * _rand((b, 1, 1), rng)


def _gamma(shape: tuple[int, ...], a: Tensor, rng: torch.Generator) -> Tensor:
    draw = getattr(torch, "_standard_gamma")  # noqa: B009  # the public one takes no generator
    return draw(a.expand(shape).contiguous(), generator=rng)


def _chance(rng: torch.Generator) -> float:
    return float(_rand((), rng))


def _one_of(names: tuple[str, ...], rng: torch.Generator) -> str:
    return names[int(_chance(rng) * len(names)) % len(names)]
