"""The distribution of an entry Σ_c W_c H_c of the synthetic matrices, their factors exponential."""

from __future__ import annotations

import numpy as np
from scipy.integrate import trapezoid
from scipy.special import exp1

_LONGEST = 400.0  # the integrand is below 1e-9 beyond, for r = 10
_STEPS = 10_000  # so the result repeats with a period of 157, far beyond the tail


def entry_density(v: np.ndarray, rank: int = 10) -> np.ndarray:
    """Density at v of Σ_c W_c H_c, where W_c, H_c ~ Exp of mean λ = 1/√r: mean 1, variance 3/r.

    One product has the density 2/λ² K₀(2√v/λ) and the characteristic function

        φ(t) = E[1 / (1 − iλtW)] = a eᵃ E₁(a),   a = i / (λ²t),

    so the sum has φʳ, which is turned back by f(v) = 1/π ∫₀^∞ Re(φ(t)ʳ e^(−itv)) dt. φʳ falls as
    (log t / t)ʳ: a small rank needs more than the trapezoidal rule used here.
    """
    if rank < 5:
        raise ValueError(f"rank is {rank}; the density is computed for ranks of at least 5")
    t = np.linspace(0, _LONGEST, _STEPS + 1)
    phi = np.ones(len(t), dtype=complex)
    a = 1j * rank / t[1:]
    phi[1:] = a * np.exp(a) * exp1(a)
    power = phi**rank
    values = [trapezoid((power * np.exp(-1j * t * x)).real, t) for x in np.ravel(v)]
    return np.reshape(values, np.shape(v)).clip(min=0) / np.pi
