"""The slow twin of the core: HALS with extrapolation, and every rule, as literally as NumPy allows.

Shapes: V (m, n), W (m, r), H (n, r).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from factormer.kernels.rules import has_settled

TWO_64 = 2**64


def mixed(x: int) -> int:
    """The finalizer of SplitMix64 (Steele et al., 2014)."""
    x = (x + 0x9E3779B97F4A7C15) % TWO_64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % TWO_64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % TWO_64
    return x ^ x >> 31


def draw(seed: int, count: int) -> np.ndarray:
    """The first numbers of a seed, uniform from 0 to 1."""
    step = 0xD1342543DE82EF95
    return np.array([(mixed((k * step + seed) % TWO_64) >> 40) * 2.0**-24 for k in range(count)])


def random_start(V: np.ndarray, r: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Uniform factors, scaled so that W Hᵀ has the mean of V."""
    m, n = V.shape
    scale = math.sqrt(4 * V.mean() / r)
    W, H = draw(seed, m * r).reshape(m, r), draw(mixed(seed) >> 1, n * r).reshape(n, r)
    return scale * W, scale * H


@dataclass
class Momentum:
    """Extrapolation with restart (Ang & Gillis, 2019)."""

    beta: float = 0.5
    last: float = 0.5
    bound: float = 1.0
    error: float = math.inf
    plain: bool = True
    refused: bool = False

    def judge(self, now: float) -> float:
        """Judge an iteration by its error; return how far ahead the next one begins."""
        step, rose = self.beta, not now <= self.error
        self.refused = rose and not (self.plain and now < math.inf)
        if rose:
            self.bound, self.last, self.beta = self.last, self.beta, self.beta / 1.5
        else:
            self.last, self.beta = self.beta, min(self.bound, 1.05 * self.beta)
            self.bound = min(1.0, 1.01 * self.bound)
        if not self.refused:
            self.error = now
        self.plain = self.refused
        return 0.0 if self.refused else step


def settled_at(errors: Any, tol: float) -> int:
    """Return the first look at which a run has settled, or −1."""
    history = np.array(errors)
    return next((t for t in range(len(errors)) if has_settled(history[: t + 1], tol)), -1)


def order_of(W: np.ndarray, H: np.ndarray) -> np.ndarray:
    """The places of components in order of their shares of Σ W Hᵀ."""
    sizes = W.sum(axis=0) * H.sum(axis=0)
    return np.argsort(-(sizes / max(sizes.sum(), 1e-300)).round(9), kind="stable")


def balanced(W: np.ndarray, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale components to ‖w_c‖ = ‖h_c‖, which leaves the product as it is."""
    w, h = np.linalg.norm(W, axis=0), np.linalg.norm(H, axis=0)
    times = np.sqrt(np.divide(h, w, out=np.ones_like(w), where=(w > 0) & (h > 0)))
    times[times == 0] = 1
    return W * times, H / times


def sweep(F: np.ndarray, G: np.ndarray, X: np.ndarray, fixed: Any = ()) -> np.ndarray:
    """One sweep on min ½ tr(X G Xᵀ) − tr(F Xᵀ) over X ≥ 0, one component after another."""
    X = X.copy()
    for c in range(len(G)):
        if c not in fixed and G[c, c] > (100 * np.finfo(float).eps) ** 2 * G.diagonal().max():
            X[:, c] = np.maximum(0, X[:, c] + (F[:, c] - X @ G[:, c]) / G[c, c])
    return X


@dataclass
class Twin:
    """A run of the core with one sweep in each half-step."""

    V: np.ndarray
    W: np.ndarray
    H: np.ndarray
    l1: tuple[float, float] = (0.0, 0.0)
    l2: tuple[float, float] = (0.0, 0.0)
    fixed: tuple[Any, Any] = ((), ())
    pull: float = 0.0
    errors: list[float] = field(default_factory=list)

    def objective(self, W: np.ndarray, H: np.ndarray) -> float:
        """Return √(2·objective / (m n))."""
        if self.pull:
            W = H = (W + H) / 2
        total = ((self.V - W @ H.T) ** 2).sum()
        for X, l1, l2 in zip((W, H), self.l1, self.l2, strict=True):
            total += 2 * l1 * X.sum() + l2 * (X**2).sum()
        return math.sqrt(total / self.V.size)

    def half_step(self, V: np.ndarray, W: np.ndarray, H: np.ndarray, side: int) -> np.ndarray:
        """The new H for W; or, with side 0 and V transposed, the new W for H."""
        ridge = (self.l2[side] + self.pull) * np.eye(W.shape[1])
        F = V.T @ W - self.l1[side]
        if self.pull:
            F += self.pull * W
        return sweep(F, W.T @ W + ridge, np.maximum(H, 0), self.fixed[side])

    def run(self, iterations: int) -> Twin:
        """Iterate, and keep the error of each iteration."""
        momentum, ahead = Momentum(), 0.0
        W, H, V = self.W, self.H, self.V
        if self.pull:
            W = H = (W + H) / 2
        W_before, H_before = W, H
        self.errors = [self.objective(W, H)]
        if self.pull:
            momentum.error = self.errors[0]
        for _ in range(iterations):
            W_ahead, H_ahead = W + ahead * (W - W_before), H + ahead * (H - H_before)
            H_new = self.half_step(V, W_ahead, H_ahead, 1)
            W_new = self.half_step(V.T, H_new, W_ahead, 0)
            error = self.objective(W_new, H_new)
            drifts = bool(self.pull) and momentum.plain and error > momentum.error
            if drifts:
                W = H = (W + H) / 2
                self.pull *= 2
            else:
                ahead = momentum.judge(error)
            if not (drifts or momentum.refused):
                W_before, H_before, W, H = W, H, W_new, H_new
            self.errors.append(momentum.error)
        self.W, self.H = W, H
        return self


def rotated_start(V: np.ndarray, r: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The truncated SVD of V, rotated toward the nonnegative orthant, for r + 10 ≤ min(m, n)."""
    n, seeds = V.shape[1], [mixed((seed + k) % TWO_64) for k in range(3)]
    p, few, steps = r + 10, 512, 30
    U = np.linalg.qr(V @ (draw(mixed(seeds[0]) >> 1, n * p).reshape(n, p) - 0.5))[0]
    U = np.linalg.qr(V @ np.linalg.qr(V.T @ U)[0])[0]
    A, S, Bt = np.linalg.svd(V.T @ U, full_matrices=False)
    X = [U @ Bt[:r].T * np.sqrt(S[:r]), A[:, :r] * np.sqrt(S[:r])]
    sampled: list[np.ndarray] = []
    for Y, own in zip(X, seeds[1:], strict=True):
        if len(Y) > few:
            Y = Y[(draw(own, few) * len(Y)).astype(int)] * np.sqrt(len(Y) / few)
        sampled.append(Y)
    least = min(map(len, sampled))
    pairs = np.stack([Y[:least] for Y in sampled], axis=1).reshape(-1, r)  # in turn
    rows = np.concatenate([pairs, *(Y[least:] for Y in sampled)])
    R = _polar(rows.T @ (draw(seeds[2], rows.size).reshape(rows.shape) - 0.5))
    for step in range(1, steps + 1):
        some = rows[: -(-len(rows) // 2)] if step < steps // 2 else rows
        P = some @ R
        R = _polar(some.T @ np.where(P < 0, -2 * P, P))
    W, H = (np.maximum(Y @ R, 0) for Y in X)
    return W, H


def _polar(M: np.ndarray) -> np.ndarray:
    """The rotation nearest to M."""
    A, _, Bt = np.linalg.svd(M)
    return A @ Bt
