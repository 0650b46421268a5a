"""The penalties and constraints on a factor, with their proximal steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from factormer.problem.penalties.penalty import X_, Penalty


def _has_room(size: float, dtype: torch.dtype) -> bool:
    """Whether a factor of this size, and the other one, have finite squares."""
    info = torch.finfo(dtype)
    return not size or info.tiny**0.4 < size < info.max**0.4


def _require(penalty: Any, name: str, fits: Callable[[float], bool], what: str) -> None:
    value = getattr(penalty, name)
    try:
        if isinstance(value, Real) and fits(float(value)):
            return
    except OverflowError:  # an int too large for a float
        pass
    raise ValueError(f"{type(penalty).__name__} has {name} {value!r:.40}; it must be {what}")


def _check_weight(penalty: Any) -> None:
    _require(penalty, "weight", lambda x: 0 <= x < math.inf, "at least 0, and finite")


_LITTLE = 0.001  # of the mean square of components, below which one counts little


@dataclass(frozen=True)
class L1(Penalty):
    """weight·Σ|X|: sparse factors."""

    weight: Any
    order: ClassVar[int | None] = 0
    degree: ClassVar[int] = 1
    __post_init__ = _check_weight

    @property
    def elastic(self) -> tuple[float, float]:
        return self.weight, 0.0

    def value(self, X: X_) -> Float[Tensor, "*b"]:
        return self.weight * X.abs().sum(dim=(-2, -1))

    def prox(self, X: X_, t: Float[Tensor, "*b 1 1"]) -> X_:
        return X.sign() * (X.abs() - self.weight * t).clamp(min=0)


@dataclass(frozen=True)
class L2(Penalty):
    """½·weight·‖X‖²: small factors."""

    weight: Any
    degree: ClassVar[int] = 2
    __post_init__ = _check_weight

    @property
    def elastic(self) -> tuple[float, float]:
        return 0.0, self.weight

    def value(self, X: X_) -> Float[Tensor, "*b"]:
        return self.weight / 2 * X.square().sum(dim=(-2, -1))

    def quadratic(self, X: X_) -> tuple[Float[Tensor, "r r"], float, float]:
        return self.weight * torch.eye(X.shape[-1], dtype=X.dtype, device=X.device), 0.0, 0.0


@dataclass(frozen=True, eq=False)
class Near(Penalty):
    """½·weight·‖X − target‖²: near a given matrix. For solvers, which know its unit."""

    target: Float[Tensor, "n r"]
    weight: Any
    degree: ClassVar[int] = 2

    @property
    def elastic(self) -> tuple[float, float]:
        return 0.0, self.weight

    @property
    def pull(self) -> X_:
        return self.weight * self.target

    def value(self, X: X_) -> Float[Tensor, ""]:
        return self.weight / 2 * (X - self.target).double().square().sum()


@dataclass(frozen=True)
class Smooth(Penalty):
    """½·weight·Σᵢ‖Xᵢ₊₁ − Xᵢ‖²: rows change slowly from one to the next."""

    weight: Any
    degree: ClassVar[int] = 2
    __post_init__ = _check_weight

    def value(self, X: X_) -> Float[Tensor, "*b"]:
        return self.weight / 2 * X.diff(dim=-2).square().sum(dim=(-2, -1))

    def quadratic(self, X: X_) -> tuple[float, float, float]:
        return 0.0, 0.0, self.weight


@dataclass(frozen=True)
class Orthogonal(Penalty):
    """weight·Σ_{c<k} ⟨X_c, X_k⟩: components that share few rows (soft; for X ≥ 0)."""

    weight: Any
    degree: ClassVar[int] = 2
    __post_init__ = _check_weight

    def value(self, X: X_) -> Float[Tensor, "*b"]:
        shared = (
            (X.mT @ X).triu(1).sum(dim=(-2, -1))
        )  # off-diagonal products only: squares would cancel
        return self.weight * shared

    def quadratic(self, X: X_) -> tuple[Float[Tensor, "r r"], X_, float]:
        """With the tangent, at X, in place of its concave part."""
        ones = torch.ones(X.shape[-1], X.shape[-1], dtype=X.dtype, device=X.device)
        return self.weight * ones, self.weight * X, 0.0


@dataclass(frozen=True)
class Volume(Penalty):
    """½·weight·log det(I + XᵀX/delta): components that span a small volume (Fu et al., 2016).

    With W on the simplex, which leaves H free to enclose the data in many ways, this prefers the
    tightest. A weight as large as the misfit ½‖W Hᵀ − V‖² shows its effect. `delta`, in the unit of
    H², is the size below which a component counts little: otherwise dark ones would be lost; 0.1
    unless it is given. Without a weight, `factorize` and `NMF` make a fit without the volume first,
    and take its misfit, and a thousandth of the mean square of its components.
    """

    weight: Any = None
    delta: Any = None

    def __post_init__(self) -> None:
        if self.weight is not None:
            _check_weight(self)
            object.__setattr__(self, "delta", 0.1 if self.delta is None else self.delta)
        if self.delta is not None:
            _require(self, "delta", lambda x: 1e-100 <= x <= 1e100, "from 1e-100 to 1e100")

    def suited(self, misfit: float, X: X_) -> Volume:
        """Fill in a missing weight, and δ, from the misfit and the components of another fit."""
        if self.weight is not None:
            return self
        square = float(X.double().square().sum()) / X.shape[-1]
        least = 1e-100  # of components of zeros
        delta = max(_LITTLE * square, least) if self.delta is None else self.delta
        return Volume(misfit, delta)

    def value(self, X: X_) -> Float[Tensor, "*b"]:
        eye, X = torch.eye(X.shape[-1], dtype=torch.float64, device=X.device), X.double()
        return self.weight / 2 * torch.logdet(eye + X.mT @ X / self.delta)

    def quadratic(self, X: X_) -> tuple[Float[Tensor, "... r r"], float, float]:
        """With the tangent, at XᵀX, in place of the logarithm, which is concave."""
        eye = torch.eye(X.shape[-1], dtype=torch.float64, device=X.device)
        G = X.double().mT @ X.double() + self.delta * eye
        return self.weight * torch.linalg.inv_ex(G).inverse.to(X), 0.0, 0.0

    def scaled(self, c: float, power: float, p: float = 0.5, level: float = 1.0) -> Volume:
        if self.weight is None:
            raise ValueError(
                "Volume() has no weight; factorize and NMF find one by a fit without it, and "
                "other functions need it: pass Volume(weight), of the size of the misfit"
            )
        weight = float(self.weight / level * np.float64(c) ** -power)
        delta = float(self.delta * np.float64(c) ** (-2 * p))
        if not (math.isfinite(weight) and 1e-100 <= delta <= 1e100):
            raise ValueError(
                f"{self} is too large or too small for V of mean {c:g}: divide V by its mean"
            )
        return Volume(weight, delta)


@dataclass(frozen=True)
class Group(Penalty):
    """weight·Σ‖Xᵢ‖ over the rows, or the columns (whole components become zero)."""

    weight: Any
    by: Any = "columns"
    order: ClassVar[int | None] = 2
    degree: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_weight(self)
        _check_by(self.by, "Group")

    @property
    def _dim(self) -> int:
        return -1 if self.by == "rows" else -2

    def value(self, X: X_) -> Float[Tensor, "*b"]:
        return self.weight * X.norm(dim=self._dim).sum(dim=-1)

    def prox(self, X: X_, t: Float[Tensor, "*b 1 1"]) -> X_:
        size = X.norm(dim=self._dim, keepdim=True).clamp(min=torch.finfo(X.dtype).tiny)
        return X * (1 - self.weight * t / size).clamp(min=0)


@dataclass(frozen=True)
class Bounds(Penalty):
    """low ≤ X ≤ high; low may be negative."""

    low: Any = 0.0
    high: Any = math.inf
    order: ClassVar[int | None] = 1
    firmness: ClassVar[int] = 2
    joins: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _require(self, "low", lambda x: x < math.inf, "a number, or -inf")
        _require(self, "high", lambda x: x > -math.inf, "a number, or inf")
        if not self.low <= self.high:
            raise ValueError(f"Bounds has low {self.low!r} above high {self.high!r}; swap them")

    @property
    def nonnegative(self) -> bool:
        return self.low >= 0

    def prox(self, X: X_, t: Float[Tensor, "*b 1 1"]) -> X_:
        return X.clamp(self.low, self.high)

    def scaled(self, c: float, power: float, p: float = 0.5, level: float = 1.0) -> Bounds:
        return Bounds(self.low / c**p, self.high / c**p)

    def fits(self, dtype: torch.dtype) -> bool:
        return all(math.isinf(x) or _has_room(abs(x), dtype) for x in (self.low, self.high))


@dataclass(frozen=True)
class Free(Penalty):
    """No bound at all: a factor of either sign (semi-NMF)."""

    order: ClassVar[int | None] = 1

    @property
    def nonnegative(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Fixed(Penalty):
    """Columns of X that are known, and stay: `columns` (n, k), in the places `at` (r,) marks."""

    columns: Any
    at: Any
    order: ClassVar[int | None] = 3
    firmness: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name in ("columns", "at"):
            try:
                object.__setattr__(self, name, torch.as_tensor(getattr(self, name)))
            except (RuntimeError, TypeError, ValueError) as error:
                raise ValueError(f"Fixed has {name} that are not an array ({error})") from error
        count = int(self.at.sum()) if self.at.dtype == torch.bool and self.at.dim() == 1 else -1
        if self.columns.dim() != 2 or self.columns.shape[1] != count:
            raise ValueError(
                f"Fixed has columns of shape {tuple(self.columns.shape)} and marks {count} places; "
                "columns is (n, k), and at has an entry for each component, true for k of them"
            )

        if not bool(self.columns.isfinite().all()):
            raise ValueError("Fixed has columns that are NaN or infinite; all must be finite")

    @property
    def elastic(self) -> tuple[float, float]:
        return 0.0, 0.0

    def prox(self, X: X_, t: Float[Tensor, "*b 1 1"]) -> X_:
        X = X.clone()
        X[..., self.at.to(X.device)] = self.columns.to(X)
        return X

    def scaled(self, c: float, power: float, p: float = 0.5, level: float = 1.0) -> Fixed:
        return Fixed(self.columns / c**p, self.at)

    def fits(self, dtype: torch.dtype) -> bool:
        return not self.columns.numel() or _has_room(float(self.columns.abs().max()), dtype)


@dataclass(frozen=True)
class Simplex(Penalty):
    """X ≥ 0, and each row (abundances), or each column, sums to `total`."""

    total: Any = 1.0
    by: Any = "rows"
    order: ClassVar[int | None] = 1
    firmness: ClassVar[int] = 2
    joins: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_by(self.by, "Simplex")
        _require(self, "total", lambda x: 1e-100 <= x <= 1e100, "from 1e-100 to 1e100")

    @property
    def row_sum(self) -> float | None:
        return self.total if self.by == "rows" else None

    def prox(self, X: X_, t: Float[Tensor, "*b 1 1"]) -> X_:
        return onto_simplex(X, self.total) if self.by == "rows" else self._by_columns(X)

    def stretched(self, X: X_) -> X_:
        """X ≥ 0 with each row, or column, scaled to the sum, unless it is 0."""
        X = X.clamp(min=0)
        X = X / X.amax(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(X.dtype).tiny)
        sums = X.sum(dim=-1 if self.by == "rows" else -2, keepdim=True)
        return X * (self.total / torch.where(sums > 0, sums, 1.0))

    def _by_columns(self, X: X_) -> X_:
        return onto_simplex(X.mT, self.total).mT

    def scaled(self, c: float, power: float, p: float = 0.5, level: float = 1.0) -> Simplex:
        return replace(self, total=self.total / c**p)

    def fits(self, dtype: torch.dtype) -> bool:
        return _has_room(self.total, dtype)


def onto_simplex(X: X_, total: float) -> X_:
    """The nearest rows that are nonnegative and sum to `total`, by sorting (Held et al., 1974).

    Adding a constant to a row changes nothing: with the largest entry at 0, the entries that stay
    are at most `total` in size, and their sum is accurate.
    """
    X = X - X.amax(dim=-1, keepdim=True)
    ordered = X.sort(dim=-1, descending=True).values
    excess = ordered.cumsum(dim=-1) - total
    ranks = torch.arange(1, X.shape[-1] + 1, dtype=X.dtype, device=X.device)
    count = (ordered - excess / ranks > 0).sum(dim=-1, keepdim=True).clamp(min=1)
    return (X - excess.gather(-1, count - 1) / count).clamp(min=0)


def _check_by(by: Any, name: str) -> None:
    if not isinstance(by, str) or by not in ("rows", "columns"):
        raise ValueError(f"{name} is by {by!r}; choose 'rows' or 'columns'")
