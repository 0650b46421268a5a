"""Products of factors with V and with themselves, for `kernels.loops` to compile.

The twins are those of numpy. Imported where numba is present alone.
"""

from __future__ import annotations

from factormer.kernels import tiles
from factormer.kernels.compile import jit
from factormer.kernels.tiles import lanes

_tile_4_3, _tile_3_3, _tile_2_3, _tile_1_3 = (tiles.product(rows, 3) for rows in (4, 3, 2, 1))
_tile_4_1, _tile_3_1, _tile_2_1, _tile_1_1 = (tiles.product(rows, 1) for rows in (4, 3, 2, 1))


def multiply(A, a, B, out, o):
    """Out = A B for B (k, n), the columns a … a + k of A, and the columns o … o + n of out.

    In tiles of up to four rows; columns of B stay in the cache for all rows of A. The last vector
    of columns has some of the one before it, if need be.
    """
    (k, n), r, lane, j = B.shape, len(A), lanes(B), 0
    if n < lane:
        for c in range(r):
            for j in range(n):
                total = 0.0
                for i in range(k):
                    total += A[c, a + i] * B[i, j]
                out[c, o + j] = total
        return
    while j < n:
        is_wide, c = n - j >= 3 * lane, 0
        if n - j < lane:
            j = n - lane
        while c < r:
            if r - c >= 4 and r - c != 5:
                if is_wide:
                    _tile_4_3(A, c, a, B, j, out, o)
                else:
                    _tile_4_1(A, c, a, B, j, out, o)
                c += 4
            elif r - c >= 3:
                if is_wide:
                    _tile_3_3(A, c, a, B, j, out, o)
                else:
                    _tile_3_1(A, c, a, B, j, out, o)
                c += 3
            elif r - c == 2:
                if is_wide:
                    _tile_2_3(A, c, a, B, j, out, o)
                else:
                    _tile_2_1(A, c, a, B, j, out, o)
                c += 2
            else:
                if is_wide:
                    _tile_1_3(A, c, a, B, j, out, o)
                else:
                    _tile_1_1(A, c, a, B, j, out, o)
                c += 1
        j += 3 * lane if is_wide else lane


def gram(A, start, stop, out):
    """Out = A Aᵀ for these columns of A."""
    for c in range(len(A)):
        for k in range(c + 1):
            p, q, total = A[c, start:stop], A[k, start:stop], 0.0
            for j in range(stop - start):
                total += p[j] * q[j]
            out[c, k] = out[k, c] = total


@jit(inner=True)
def transposed(A, i, m, j, n, out, k, c):
    """Out[k:, c:] = Aᵀ for its rows i … i + m and columns j … j + n.

    In squares, of which the last of a row or column has some of the one before it, if need be.
    """
    side = lanes(A)
    if m < side or n < side:
        for p in range(m):
            for q in range(n):
                out[k + q, c + p] = A[i + p, j + q]
        return
    for first in range(0, m, side):
        p = min(first, m - side)
        for other in range(0, n, side):
            q = min(other, n - side)
            tiles.transpose(A, i + p, j + q, out, k + q, c + p)
