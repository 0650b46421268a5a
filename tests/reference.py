"""Slow, literal transcriptions of the paper, to compare the fast code with.

ADMM inverts its matrix outright; NNDSVD loops. The paper's network is in `lab/tests/reference.py`.
"""

import math

import numpy as np
import torch
from torch import Tensor

# ADMM for nonnegative least squares (app. B)


def admm(
    W: Tensor, V: Tensor, *, rho: float, n_inner: int, dual_sign: int = 1
) -> tuple[Tensor, Tensor]:
    """Eqs. 20–22 from H̃ = U = 0, with an explicit inverse; returns H̃ and U.

    `dual_sign` = 1 is the dual step U + H̃ − H, −1 the one that the paper prints.
    """
    (n, r), identity = (V.shape[1], W.shape[1]), torch.eye(W.shape[1], dtype=W.dtype)
    H, U = torch.zeros(n, r, dtype=W.dtype), torch.zeros(n, r, dtype=W.dtype)
    for _ in range(n_inner):
        H_free = (torch.linalg.inv(W.T @ W + rho * identity) @ (W.T @ V + rho * (H + U).T)).T
        H = (H_free - U).clamp(min=0)
        U = U + dual_sign * (H - H_free)
    return H, U


# NNDSVD (Boutsidis & Gallopoulos, 2008)


def nndsvd(V: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The algorithm of the article, a component at a time, from a full SVD; rank ≤ min(m, n)."""
    m, n = V.shape
    U, S, Zt = np.linalg.svd(V)
    W, H = np.zeros((m, rank)), np.zeros((n, rank))
    for i in range(m):
        W[i, 0] = math.sqrt(S[0]) * abs(U[i, 0])
    for j in range(n):
        H[j, 0] = math.sqrt(S[0]) * abs(Zt[0, j])
    for c in range(1, rank):
        x, y = U[:, c], Zt[c]
        x_plus, y_plus = np.maximum(x, 0), np.maximum(y, 0)
        x_minus, y_minus = np.maximum(-x, 0), np.maximum(-y, 0)
        mu_plus = np.linalg.norm(x_plus) * np.linalg.norm(y_plus)
        mu_minus = np.linalg.norm(x_minus) * np.linalg.norm(y_minus)
        u, v, mu = (x_plus, y_plus, mu_plus) if mu_plus > mu_minus else (x_minus, y_minus, mu_minus)
        if mu > 0:
            W[:, c] = math.sqrt(S[c] * mu) * u / np.linalg.norm(u)
            H[:, c] = math.sqrt(S[c] * mu) * v / np.linalg.norm(v)
    return W, H


# Newton steps under a β-divergence


def newton_row(
    v: np.ndarray, weight: np.ndarray, B: np.ndarray, x: np.ndarray, *,
    beta: float, l1: float, l2: float, near: float, n_sweeps: int, least: float = 0.0,
) -> np.ndarray:  # fmt: skip
    """One step on Σ ω d(v, Bx) + λ₁Σx + λ₂‖x‖²/2 over x ≥ 0, as the formulas have it."""
    tiny, flat = 1e4 * np.finfo(float).tiny, np.finfo(float).eps ** 2
    y = B @ x
    z = y if beta == 2 else np.maximum(np.maximum(y, near * v), tiny)
    concave = z ** (beta - 1) if beta < 1 else -v * z ** (beta - 2) if beta > 2 else 0 * v
    curve = {True: (beta - 1) * z ** (beta - 2), False: 0 * v}[beta >= 1]
    curve = curve + ((2 - beta) * v * z ** (beta - 3) if beta < 2 else 0)
    g = B.T @ (weight * z ** (beta - 2) * (z - v)) + l1 + l2 * x
    G = B.T @ np.diag(weight * curve) @ B + l2 * np.eye(len(x))
    step, free, first = np.zeros_like(x), np.flatnonzero((x > 0) | (g < 0)), None
    for _ in range(n_sweeps):
        gain = 0.0
        for c in free:  # the others are zero, and should be
            slope, largest = g[c] + G[c] @ step, G.diagonal()[free].max()
            curved = G[c, c] > flat * largest  # else it is all but linear: nowhere but down
            with np.errstate(divide="ignore", over="ignore"):
                move = -slope / (G[c, c] if curved else 1e-12 * largest) if slope else 0.0
            before, step[c] = step[c], max(step[c] + (move if curved else min(move, 0.0)), -x[c])
            gain += G[c, c] * (step[c] - before) ** 2
        first = gain if first is None else first
        if gain <= least * first:  # sweeps end where they gain little
            break

    def slope_at(t: float) -> float:
        fit = y + t * (B @ step) if beta == 2 else np.maximum(y + t * (B @ step), tiny)
        up = fit ** (beta - 1) if beta >= 1 else 0
        down = v * fit ** (beta - 2) if beta <= 2 else 0
        slopes = np.where(weight > 0, weight * (up - down + concave), 0)
        along = (B @ step) @ slopes
        return float(along + step @ (l1 + l2 * (x + t * step)))

    t = 1.0
    with np.errstate(over="ignore", invalid="ignore"):  # a fit of zero has an infinite slope
        while beta != 2 and slope_at(t) > 0 and slope_at(t / 2) + slope_at(t) > 0:
            t /= 2
    return np.maximum(x + t * step, 0)
