"""What the any-rank accelerator does with whole factors, compiled for the CPU by numba.

One pass over a factor gathers the inner products of its moves, another makes the proposal. Factors
are (r, n) here, and threads share the components. Imported by `kernels.passes()` alone, where numba
is present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from factormer.kernels.loops import array, jit, once

N_PRODUCTS = 13


@once
def gather(dtype: Any) -> Callable[..., None]:
    """The compiled inner products, for arrays of float32 or float64.

    The twin is `accelerate.anyrank.pooled`; the order of the products is that of `Pooled`.
    """
    real = numba.from_dtype(dtype)
    factor, sums, count = array(real), array(types.float64), types.int64

    @jit(types.void(*[factor] * 6, sums, count, count))
    def kernel(X, before, y, P, T, U, sums, start, stop):
        """Inner products of the components start … stop, to the columns of `sums`."""
        n = X.shape[1]
        for c in range(start, stop):
            x, b, a, p, t, u = X[c], before[c], y[c], P[c], T[c], U[c]
            XX = XD = DD = DP = PP = SD = SS = ST = SU = TT = TU = UU = x[0] * 0
            for j in range(n):
                D, S = x[j] - b[j], x[j] - a[j]
                XX += x[j] * x[j]
                XD += x[j] * D
                DD += D * D
                DP += D * p[j]
                PP += p[j] * p[j]
                SD += S * D
                SS += S * S
                ST += S * t[j]
                SU += S * u[j]
                TT += t[j] * t[j]
                TU += t[j] * u[j]
                UU += u[j] * u[j]
            small, zeros = 1e-8 * np.sqrt(XX), 0
            for j in range(n):
                zeros += x[j] <= small
            found = (XX, XD, DD, DP, PP, SD, SS, ST, SU, TT, TU, UU)
            for k in range(12):
                sums[k, c] = found[k]
            sums[12, c] = zeros / n

    return kernel


@once
def combine(dtype: Any) -> Callable[..., None]:
    """The compiled proposal, for arrays of float32 or float64."""
    real = numba.from_dtype(dtype)
    factor, amounts, count = array(real), array(real), types.int64

    @jit(types.void(*[factor] * 7, amounts, count, count))
    def kernel(X, before, y, P, proposed, D, S, amounts, start, stop):
        """D = X − before, S = X − y and X + d D + p P + s S, for the components start … stop."""
        for c in range(start, stop):
            d, p, s = amounts[0, c], amounts[1, c], amounts[2, c]
            x, b, a, older = X[c], before[c], y[c], P[c]
            out, last, own = proposed[c], D[c], S[c]
            for j in range(X.shape[1]):
                last[j] = x[j] - b[j]
                own[j] = x[j] - a[j]
                out[j] = x[j] + (d * last[j] + p * older[j] + s * own[j])

    return kernel
