"""Nonnegative least squares for one row, by the method of Lawson & Hanson (1974).

Plain loops that numba can compile. Each is bounded: a component enters, leaves or is tried in vain.
"""

from __future__ import annotations

import math
from typing import Any

ROUNDING = 4e-16  # slope, relative to the target, that rounding cannot tell from zero
_DEPENDENT = 1e-14  # share of a column left over at which it counts as dependent


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
    factorization follows them, so that nearly dependent ones lose no digits. The loss falls from
    step to step, and the method ends where it does not, or after a limit of tries.
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
