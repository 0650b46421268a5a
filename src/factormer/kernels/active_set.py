"""Nonnegative least squares, row by row and exactly, in plain loops that numba can compile.

Where numba is absent they run as they stand: slowly, with the same answer.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

PIVOT = 1e-13  # what is left of a column, beside it, that counts as depending on the others
_ROUNDS = 40  # of pivoting by blocks, at most
_PATIENCE = 3  # rounds without a gain before one component at a time is safer


class Room(NamedTuple):
    """Room for the row in hand: Cholesky factor, target, residual, three vectors, two lists."""

    L: np.ndarray
    t: np.ndarray
    rest: np.ndarray
    f: np.ndarray
    s: np.ndarray
    y: np.ndarray
    order: np.ndarray
    kind: np.ndarray

    @staticmethod
    def of(r: int, k: int) -> Room:
        """For r components of k numbers each."""
        floats = [np.zeros(shape) for shape in ((r, r), k, k, r, r, r)]
        return Room(*floats, *(np.zeros(r, np.int64) for _ in range(2)))


def slopes(Rt: Any, t: Any, l1: Any, scale: Any, x: Any, kind: Any, rest: Any, f: Any) -> None:
    """Set f = Rᵀ(t − R x) − l1/scale, where x is zero but for the components of kind 1."""
    for j in range(len(t)):
        rest[j] = t[j]
    for c in range(len(Rt)):
        if kind[c] == 1:
            column, weight = Rt[c], x[c]
            for j in range(len(t)):
                rest[j] -= weight * column[j]
    for c in range(len(Rt)):
        column, value = Rt[c], -l1[c] / scale
        for j in range(len(t)):
            value += column[j] * rest[j]
        f[c] = value


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


def solve_rows(
    Rt: Any, G: Any, T: Any, l1: Any, X: Any, start: Any, stop: Any, eps: Any,
    L: Any, t: Any, rest: Any, f: Any, s: Any, y: Any, order: Any, kind: Any,
) -> int:  # fmt: skip
    """Minimise ½‖R x − t‖² + ⟨l1, x⟩ over x ≥ 0 for the rows t of T, from those of X, and in them.

    Rt is Rᵀ by rows, of length 1, and G = RᵀR. The components at which x > 0 are the first guess.
    All that have the wrong sign, in x or in the gradient, change sides at once (block pivoting, Kim
    & Park, 2011), mostly a few times; where that does not settle, components enter one by one, the
    one of steepest descent first (Lawson & Hanson, 1974), and leave as they reach zero. Each answer
    is corrected once by the gradient taken from R itself, which brings back the digits that G has
    lost, and the signs of that gradient are the proof. Returns how many rows ended without it.
    """
    r, k, unproven = Rt.shape[0], Rt.shape[1], 0
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
        bound = eps * math.sqrt(length)
        for c in range(r):
            kind[c] = 0  # 0 is zero, 1 is not, 2 was tried in vain
        slopes(Rt, t, l1, scale, x, kind, rest, f)
        for c in range(r):
            kind[c] = 1 if x[c] > 0 else 0
            x[c] = 0
        fewest, patience = r + 1, _PATIENCE
        for _ in range(_ROUNDS):
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
            if wrong == 0 or patience < 0:
                break
            for c in range(r):
                if y[c] != 0:
                    kind[c] = 1 if y[c] > 0 else 0
        while True:  # what is left below zero leaves
            count, wrong = solve_listed(G, f, kind, order, L, s, y), 0
            for a in range(count):
                if s[order[a]] <= 0:
                    kind[order[a]] = 0
                    wrong += 1
            if wrong == 0:
                break
        proven = False
        for _ in range(5 * r + 10):
            slopes(Rt, t, l1, scale, s, kind, rest, y)
            for c in range(r):  # the gradient at s; `rest` is free again
                f[c] = y[c]
            correct(f, order, count, L, s, y)
            for c in range(r):
                x[c] = max(s[c], 0)
            slopes(Rt, t, l1, scale, x, kind, rest, f)
            enters, steepest = -1, bound
            for c in range(r):
                if kind[c] == 0 and f[c] > steepest:
                    enters, steepest = c, f[c]
            if enters < 0:
                proven = True
                break
            for c in range(r):  # G s = f of the target again, in place of what is left of it
                for a in range(count):
                    f[c] += G[c, order[a]] * x[order[a]]
            kind[enters] = 1
            entering = True
            while True:
                count = solve_listed(G, f, kind, order, L, s, y)
                if entering and (kind[enters] != 1 or s[enters] <= 0):  # it leads nowhere
                    kind[enters] = 2
                    count = solve_listed(G, f, kind, order, L, s, y)
                    break
                entering = False
                step, wrong = 1.0, 0
                for a in range(count):
                    c = order[a]
                    if s[c] <= 0:
                        step = min(step, x[c] / (x[c] - s[c]))
                        wrong += 1
                if wrong == 0:
                    for c in range(r):  # what was tried in vain may pay from here
                        kind[c] = 0 if kind[c] == 2 else kind[c]
                    break
                for a in range(count):
                    c = order[a]
                    if s[c] <= 0 and x[c] / (x[c] - s[c]) <= step:
                        x[c] = 0
                        kind[c] = 0
                    else:
                        x[c] += step * (s[c] - x[c])
        unproven += 0 if proven else 1
        for c in range(r):
            x[c] *= scale
    return unproven
