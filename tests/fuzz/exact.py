"""Objectives in extended precision, whose range no data can leave; by code of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from factormer import penalties

Long = np.longdouble


class Value(NamedTuple):
    """An objective, the part of it that is the fit, and what rounding may add to it."""

    total: Any
    fit: Any
    noise: Any
    entries: float

    @property
    def rmse(self) -> Any:
        """√(2·objective / entries)."""
        return np.sqrt(2 * np.maximum(self.total, 0) / self.entries)

    @property
    def blur(self) -> Any:
        """Return what `noise` may do to `rmse`."""
        return np.sqrt(2 * (np.maximum(self.total, 0) + self.noise) / self.entries) - self.rmse


def objective(
    A: np.ndarray, omega: np.ndarray | None, W: np.ndarray, H: np.ndarray,
    beta: float = 2.0, on_w: Any = (), on_h: Any = (), eps: float = 1e-16,
) -> Value:  # fmt: skip
    """Σ ω d(A, W Hᵀ) + p(W) + q(H)."""
    left, right = W.astype(Long), H.astype(Long)
    Y, size = left @ right.T, np.abs(left) @ np.abs(right).T
    known = np.ones(A.shape, bool) if omega is None else omega > 0
    w = np.ones(A.shape, Long) if omega is None else omega.astype(Long)
    v, y, size, w = (F[known] for F in (A.astype(Long), Y, size, w))
    rounding = eps * (W.shape[1] + 8)
    with np.errstate(all="ignore"):
        d = divergence(v, y, beta)
        error = rounding * (size + v)
        if beta == 2:
            noise = np.abs(v - y) * error + error**2
        else:
            noise = _sensitivity(v, np.maximum(y, np.finfo(Long).tiny), beta) * rounding
        fit = (w * d).sum()
        p = sum((penalty(term, left) for term in on_w), start=Long(0))
        q = sum((penalty(term, right) for term in on_h), start=Long(0))
        blur = 8 * (w * noise).sum() + 64 * eps * (np.abs(fit) + np.abs(p) + np.abs(q))
    return Value(fit + p + q, fit, blur, max(float(known.sum()), 1.0))


def divergence(v: np.ndarray, y: np.ndarray, beta: float) -> np.ndarray:
    """The β-divergence d(v, y), entry by entry."""
    if beta == 2:
        return (v - y) ** 2 / 2
    if beta == 1:
        return np.where(v > 0, v * np.log(np.where(v > 0, v, 1) / y), 0) - v + y
    if beta == 0:
        return v / y - np.log(v / y) - 1
    powers = v**beta + (beta - 1) * y**beta - beta * v * y ** (beta - 1)
    return powers / (beta * (beta - 1))


def _sensitivity(v: np.ndarray, y: np.ndarray, beta: float) -> np.ndarray:
    if beta == 1:
        ratio = np.where(v > 0, v, y) / y
        return v + y + np.abs(v * np.log(ratio))
    if beta == 0:
        return v / y + np.abs(np.log(np.where(v > 0, v, y) / y)) + 1
    scale = np.abs(1 / (beta * (beta - 1))) + 1
    return scale * (1 + np.abs(beta)) * (v**beta + y**beta + v * y ** (beta - 1))


def penalty(term: Any, X: np.ndarray) -> Any:
    """λ·p(X), by the definitions in the documentation."""
    weight = Long(getattr(term, "weight", 0.0))
    match term:
        case penalties.L1():
            return weight * np.abs(X).sum()
        case penalties.L2():
            return weight * (X**2).sum() / 2
        case penalties.Smooth():
            return weight * (np.diff(X, axis=0) ** 2).sum() / 2
        case penalties.Orthogonal():
            gram = X.T @ X
            return weight * (gram.sum() - np.trace(gram)) / 2
        case penalties.Group():
            return weight * np.sqrt((X**2).sum(axis=1 if term.by == "rows" else 0)).sum()
    return Long(0)


def nnls_objective(A: np.ndarray, H: np.ndarray) -> Any:
    """½‖A − W Hᵀ‖² at the best W ≥ 0, row by row, by scipy; data of any size."""
    from scipy.optimize import nnls

    top, side = np.abs(A).max() or 1.0, np.abs(H).max() or 1.0
    norms = [nnls(H / side, row / top, maxiter=50 * H.shape[1] + 50)[1] for row in A]
    return (np.array(norms, Long) ** 2).sum() / 2 * Long(top) ** 2


def sweep(
    A: np.ndarray, W: np.ndarray, H: np.ndarray, least: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """One pass of coordinate descent over the components, in extended precision.

    Not over one whose other half is at most `least` beside the largest: so is its gradient, and to
    divide by its square would revive what is as good as zero.
    """
    W, H, R = W.astype(Long), H.astype(Long), A.astype(Long) - W.astype(Long) @ H.astype(Long).T
    for F, G, flip in ((H, W, True), (W, H, False)):
        for c in range(F.shape[1]):
            size = (G[:, c] ** 2).sum()
            if size <= least**2 * (G**2).sum(axis=0).max():
                continue
            E = R.T if flip else R
            new = np.maximum(F[:, c] + E @ G[:, c] / size, 0)
            change = np.outer(new - F[:, c], G[:, c])
            R = R - (change.T if flip else change)
            F[:, c] = new
    return W, H
