"""Nonnegative least squares, row by row and exactly, in plain loops that numba can compile.

Where numba is absent they run as they stand: slowly, with the same answer. Every loop is bounded.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from factormer.kernels.lawson_hanson import ROUNDING, one_by_one, slopes

PIVOT = 1e-13  # share of a squared column left over at which it counts as dependent
_ROUNDS = 20  # of pivoting by blocks, at most
_PATIENCE = 3  # rounds without a gain before one component at a time is safer
_CLOSE = 1e-4  # residual relative to the target below which a small slope proves little


class Room(NamedTuple):
    """Room for the row in hand: two factors, target and residual, five vectors, two lists."""

    L: np.ndarray
    A: np.ndarray
    t: np.ndarray
    b: np.ndarray
    rest: np.ndarray
    f: np.ndarray
    s: np.ndarray
    d: np.ndarray
    y: np.ndarray
    z: np.ndarray
    order: np.ndarray
    kind: np.ndarray

    @staticmethod
    def of(r: int, k: int) -> Room:
        """For r components of k numbers each."""
        floats = [np.zeros(shape) for shape in ((r, r), (r, k), k, k, k, r, r, r, r, r)]
        return Room(*floats, *(np.zeros(r, np.int64) for _ in range(2)))


class SumRoom(NamedTuple):
    """Room for a row whose sum is known: three sets of columns, three targets, six vectors."""

    B: np.ndarray
    unit: np.ndarray
    A: np.ndarray
    target: np.ndarray
    b: np.ndarray
    rest: np.ndarray
    f: np.ndarray
    s: np.ndarray
    d: np.ndarray
    y: np.ndarray
    z: np.ndarray
    none: np.ndarray
    order: np.ndarray
    kind: np.ndarray

    @staticmethod
    def of(r: int, k: int) -> SumRoom:
        """For r components of k numbers each, and one more number for the sum."""
        shapes = [(r, k + 1)] * 3 + [(k + 1,)] * 3 + [(r,)] * 6
        floats = [np.zeros(shape) for shape in shapes]
        return SumRoom(*floats, *(np.zeros(r, np.int64) for _ in range(2)))


def solve_listed(G: Any, f: Any, kind: Any, order: Any, L: Any, s: Any, y: Any) -> int:
    """Solve G s = f for the components of kind 1, all others of s being zero.

    By Cholesky's factor, which is left in L. Components that depend on those before them become
    kind 0; returns how many stay, and lists them in `order`.
    """
    stay = 0
    for c in range(len(G)):
        s[c] = 0
        if kind[c] != 1:
            continue
        pivot = G[c, c]
        for b in range(stay):
            value = G[c, order[b]]
            for e in range(b):
                value -= L[stay, e] * L[b, e]
            value /= L[b, b]
            L[stay, b] = value
            pivot -= value * value
        if pivot > PIVOT * G[c, c]:
            L[stay, stay] = math.sqrt(pivot)
            order[stay] = c
            stay += 1
        else:
            kind[c] = 0
    correct(f, order, stay, L, s, y)
    return stay


def correct(f: Any, order: Any, count: Any, L: Any, s: Any, y: Any) -> None:
    """Add to s the solution for f on the listed components, whose factor is L."""
    for a in range(count):
        value = f[order[a]]
        for b in range(a):
            value -= L[a, b] * y[b]
        y[a] = value / L[a, a]
    for e in range(count):
        a = count - 1 - e
        value = y[a]
        for b in range(a + 1, count):
            value -= L[b, a] * y[b]
        y[a] = value / L[a, a]
        s[order[a]] += y[a]


def pivot_blocks(
    Rt: Any, G: Any, t: Any, l1: Any, scale: Any, bound: Any,
    L: Any, rest: Any, f: Any, s: Any, y: Any, order: Any, kind: Any,
) -> bool:  # fmt: skip
    """Minimise for the target t from the components of kind 1, and leave the answer in s.

    All components with the wrong sign, in x or in the gradient, change sides at once (block
    pivoting, Kim & Park, 2011), mostly a few times. The answer is corrected by the gradient taken
    from R itself, which brings back the digits that G has lost. Returns whether that gradient
    proves the answer; where it does not, s means nothing.
    """
    r = len(G)
    for c in range(r):
        s[c] = 0
    slopes(Rt, t, l1, scale, s, rest, f)
    count, asked, fewest, patience = 0, 0, r + 1, _PATIENCE
    for _ in range(_ROUNDS):
        asked = 0
        for c in range(r):
            asked += 1 if kind[c] == 1 else 0
        count, wrong = solve_listed(G, f, kind, order, L, s, y), 0
        for c in range(r):
            if kind[c] == 1:
                y[c] = -1 if s[c] <= 0 else 0
            else:
                slope = f[c]
                for a in range(count):
                    slope -= G[c, order[a]] * s[order[a]]
                y[c] = 1 if slope > bound else 0
            if y[c] != 0:
                wrong += 1
        patience = _PATIENCE if wrong < fewest else patience - 1
        fewest = min(fewest, wrong)
        if wrong == 0:
            break
        if patience < 0:
            return False
        for c in range(r):
            if y[c] != 0:
                kind[c] = 1 if y[c] > 0 else 0
    if count < asked:  # of what depends on others, nearly, G cannot say enough
        return False
    for _ in range(2):
        slopes(Rt, t, l1, scale, s, rest, f)
        correct(f, order, count, L, s, y)
    for c in range(r):
        s[c] = max(s[c], 0)
    slopes(Rt, t, l1, scale, s, rest, f)
    least, steepest = 0.0, 0.0
    for c in range(r):
        least = min(least, f[c]) if kind[c] == 1 else least
        steepest = max(steepest, f[c])
    return bool(least >= -bound and steepest <= bound)


def solve_rows(
    Rt: Any, G: Any, T: Any, l1: Any, X: Any, guess: Any, start: Any, stop: Any, eps: Any,
    L: Any, A: Any, t: Any, b: Any, rest: Any, f: Any, s: Any, d: Any, y: Any, z: Any,
    order: Any, kind: Any,
) -> int:  # fmt: skip
    """Minimise ½‖R x − t‖² + ⟨l1, x⟩ over x ≥ 0 for the rows t of T, and write them to X.

    Rt is Rᵀ by rows, of length 1, and G = RᵀR. The components at which `guess` is positive are
    tried first, in blocks; where that ends without a proof, components enter one by one. A row
    of X stays as it is unless the new one fits as well. Returns how many rows were hard.
    """
    r, k, hard = Rt.shape[0], Rt.shape[1], 0
    for i in range(start, stop):
        x, scale, length = X[i], 0.0, 0.0
        for j in range(k):
            scale = max(scale, abs(T[i, j]))
        if scale == 0:
            for c in range(r):
                x[c] = 0
            continue
        for j in range(k):
            t[j] = T[i, j] / scale
            length += t[j] * t[j]
        for c in range(r):
            x[c] /= scale
            kind[c] = 1 if guess[i, c] > 0 else 0
        bound = eps * math.sqrt(length)
        before = slopes(Rt, t, l1, scale, x, rest, f)
        proven = pivot_blocks(Rt, G, t, l1, scale, bound, L, rest, f, s, y, order, kind)
        after = slopes(Rt, t, l1, scale, s, rest, f) if proven else math.inf
        if not proven or bound * bound < after < _CLOSE * _CLOSE * length:
            hard += 1
            least = ROUNDING * math.sqrt(length)
            one_by_one(Rt, t, l1, scale, least, d, A, b, rest, f, y, z, order, kind)
            other = slopes(Rt, t, l1, scale, d, rest, f)
            if not after <= other:
                after = other
                for c in range(r):
                    s[c] = d[c]
        better = after <= before * (1 + eps) + bound * bound
        for c in range(r):
            x[c] = scale * (s[c] if better else x[c])
    return hard


def solve_sums(
    Dt: Any, T: Any, total: Any, X: Any, start: Any, stop: Any,
    B: Any, unit: Any, A: Any, target: Any, b: Any, rest: Any, f: Any, s: Any, d: Any, y: Any,
    z: Any, none: Any, order: Any, kind: Any,
) -> None:  # fmt: skip
    """Minimise ‖D x − t‖² over x ≥ 0 that sum to `total`, for the rows t of T; write them to X.

    Dt is Dᵀ by rows. That is the point nearest to zero among the mixtures of the columns
    total·D_c − t = E_c, and its weights are in proportion to the y ≥ 0 that minimise
    ‖E y‖² + (1ᵀy − 1)²: of y = a·x the best is ‖E x‖² / (1 + ‖E x‖²). A row of X stays as it is
    unless the new one fits as well.
    """
    r, k = Dt.shape[0], Dt.shape[1]
    for i in range(start, stop):
        least = math.inf
        for c in range(r):
            d[c] = 0
            for j in range(k):
                B[c, j] = total * Dt[c, j] - T[i, j]
                d[c] = max(d[c], abs(B[c, j]))
            least = min(least, d[c])
        least = least if least > 0 else 1.0
        for c in range(r):
            size = 1.0
            for j in range(k):
                B[c, j] /= least
                size += B[c, j] * B[c, j]
            B[c, k] = 1
            d[c] = math.sqrt(size)
            for j in range(k + 1):
                unit[c, j] = B[c, j] / d[c]
        target[k] = 1
        one_by_one(unit, target, none, 1.0, ROUNDING, s, A, b, rest, f, y, z, order, kind)
        sums, before = 0.0, 0.0
        for c in range(r):
            s[c] /= d[c]
            sums += s[c]
            before += X[i, c]
        if not sums > 0:
            continue
        old, new = 0.0, 0.0
        for j in range(k):
            left, right = 0.0, 0.0
            for c in range(r):
                left += B[c, j] * X[i, c]
                right += B[c, j] * s[c]
            old += (left / before) ** 2
            new += (right / sums) ** 2
        for c in range(r):
            X[i, c] = total * (s[c] / sums if not new > old else X[i, c] / before)
