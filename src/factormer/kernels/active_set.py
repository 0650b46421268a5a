"""Nonnegative least squares, row by row and exactly, in plain loops that numba can compile.

Where numba is absent they run as they stand: slowly, with the same answer. Every loop is bounded.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

PIVOT = 1e-13  # what is left of a squared column, beside it, that counts as depending on the others
_ROUNDS = 20  # of pivoting by blocks, at most
_PATIENCE = 3  # rounds without a gain before one component at a time is safer
_DEPENDENT = 1e-14  # what is left of a column, beside it, that counts as depending on the others
_ROUNDING = 4e-16  # what a slope, beside the target, cannot be told from zero by
_CLOSE = 1e-4  # residual, beside the target, below which a small slope still says little of it


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


def slopes(Rt: Any, t: Any, l1: Any, scale: Any, x: Any, rest: Any, f: Any) -> float:
    """Set rest = t − R x and f = Rᵀ rest − l1/scale; return ½‖rest‖² + ⟨l1, x⟩/scale."""
    value = 0.0
    for j in range(len(t)):
        rest[j] = t[j]
    for c in range(len(Rt)):
        if x[c] != 0:
            column, weight = Rt[c], x[c]
            value += l1[c] / scale * weight
            for j in range(len(t)):
                rest[j] -= weight * column[j]
    for c in range(len(Rt)):
        column, slope = Rt[c], -l1[c] / scale
        for j in range(len(t)):
            slope += column[j] * rest[j]
        f[c] = slope
    for j in range(len(t)):
        value += rest[j] * rest[j] / 2
    return value


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


def enter(A: Any, b: Any, order: Any, kind: Any, c: Any, count: Any) -> bool:
    """Turn column c to zeros below place `count`, by a reflection of all that are not listed.

    Returns False, with nothing changed, where the column depends on those that are listed.
    """
    above, below = 0.0, 0.0
    for j in range(count):
        above += A[c, j] * A[c, j]
    for j in range(count, len(b)):
        below += A[c, j] * A[c, j]
    if below == 0 or below <= _DEPENDENT * _DEPENDENT * (above + below):
        return False
    size = math.sqrt(below) if A[c, count] <= 0 else -math.sqrt(below)
    head = A[c, count] - size  # the reflection is along (head, A[c, count + 1:])
    for d in range(len(A) + 1):
        if d < len(A) and (kind[d] == 1 or d == c):
            continue
        row = A[d] if d < len(A) else b
        along = head * row[count]
        for j in range(count + 1, len(b)):
            along += A[c, j] * row[j]
        along /= size * head  # which is −½ of the squared length
        row[count] += along * head
        for j in range(count + 1, len(b)):
            row[j] += along * A[c, j]
    A[c, count] = size
    for j in range(count + 1, len(b)):
        A[c, j] = 0
    order[count] = c
    return True


def leave(A: Any, b: Any, order: Any, place: Any, count: Any) -> None:
    """Take the column at that place from the list, and turn those after it to a triangle again."""
    for a in range(place + 1, count):
        c = order[a]
        order[a - 1] = c
        one, two = A[c, a - 1], A[c, a]
        size = math.hypot(one, two)
        if size == 0:
            continue
        cosine, sine = one / size, two / size
        for d in range(len(A) + 1):
            row = A[d] if d < len(A) else b
            one, two = row[a - 1], row[a]
            row[a - 1], row[a] = cosine * one + sine * two, cosine * two - sine * one
        A[c, a] = 0


def solve_triangle(
    A: Any, b: Any, l1: Any, scale: Any, order: Any, count: Any, s: Any, z: Any
) -> None:
    """Set s on the listed components to the minimum over them, whatever its signs."""
    for a in range(count):
        value = l1[order[a]] / scale
        for e in range(a):
            value -= A[order[a], e] * z[e]
        z[a] = value / A[order[a], a]
    for e in range(count):
        a = count - 1 - e
        value = b[a] - z[a]
        for d in range(a + 1, count):
            value -= A[order[d], a] * s[order[d]]
        s[order[a]] = value / A[order[a], a]


def one_by_one(
    Rt: Any, t: Any, l1: Any, scale: Any, bound: Any, x: Any,
    A: Any, b: Any, rest: Any, f: Any, s: Any, z: Any, order: Any, kind: Any,
) -> None:  # fmt: skip
    """Minimise for the target t by the method of Lawson & Hanson (1974), from zero.

    Components enter one at a time, the steepest first, and leave as they reach zero; an orthogonal
    factorisation follows them, so that nearly dependent ones lose no digits. The loss falls from
    step to step, and the method ends where it does not, or after so many tries.
    """
    r, k, count, tries = Rt.shape[0], Rt.shape[1], 0, 0
    for c in range(r):
        x[c] = 0
        kind[c] = 0  # 0 is zero, 1 is not, 2 was tried in vain
        for j in range(k):
            A[c, j] = Rt[c, j]
    for j in range(k):
        b[j] = t[j]
    value = slopes(Rt, t, l1, scale, x, rest, f)
    while True:
        while True:  # each time round, a component enters or is tried in vain
            enters, steepest = -1, bound
            for c in range(r):
                if kind[c] == 0 and f[c] > steepest:
                    enters, steepest = c, f[c]
            tries += 1
            if enters < 0 or tries > 6 * r + 20:
                return
            if count < k and enter(A, b, order, kind, enters, count):
                kind[enters] = 1
                count += 1
                solve_triangle(A, b, l1, scale, order, count, s, z)
                if s[enters] > 0:
                    break
                count -= 1
            kind[enters] = 2
        while True:  # each time round, a component leaves
            step, place = 1.0, -1
            for a in range(count):
                c = order[a]
                if s[c] <= 0:
                    reach = x[c] / (x[c] - s[c]) if x[c] > 0 else 0.0
                    if reach <= step:
                        step, place = reach, a
            for a in range(count):
                c = order[a]
                x[c] = max(x[c] + step * (s[c] - x[c]), 0.0) if place >= 0 else s[c]
            if place < 0:
                break
            x[order[place]] = 0
            kind[order[place]] = 0
            leave(A, b, order, place, count)
            count -= 1
            solve_triangle(A, b, l1, scale, order, count, s, z)
        before, value = value, slopes(Rt, t, l1, scale, x, rest, f)
        if not value < before:
            return
        for c in range(r):  # what was tried in vain may pay from here
            kind[c] = 0 if kind[c] == 2 else kind[c]


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
            least = _ROUNDING * math.sqrt(length)
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
