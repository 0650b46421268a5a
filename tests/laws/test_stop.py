"""Every way to factorize ends where the reference does, also where only rounding errors are left.

The way of one V on the chip of a GPU is in `tests/kernels/test_chip_text.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factormer import Status, factorize, factorize_many
from factormer.kernels.rules import FIRST_LOOK, LOOK_EVERY, has_settled

OPTIONS: dict[str, Any] = {"init": "random", "solver": "her"}


def data(seed: int, rank: int = 1, m: int = 30, n: int = 20) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((m, rank)) @ rng.random((rank, n)) * (0.9 + 0.2 * rng.random((m, n)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("rank", "tol", "most"), [(1, 1e-4, 60), (1, 1e-15, 400), (2, 1e-5, 1000), (3, 1e-9, 4000)]
)
def test_runs_end_where_the_reference_does(seed, rank, tol, most):
    V = data(seed, rank)
    limits: dict[str, Any] = {"tol": tol, "max_iter": most}
    found = factorize_many([V, V], rank, random_state=seed, **OPTIONS, **limits)
    for k, result in enumerate(found):
        twin = factorize(V, rank, random_state=seed + k, engine="reference", **OPTIONS, **limits)
        assert result.status is twin.status is Status.CONVERGED
        assert result.rmse == pytest.approx(twin.rmse, rel=max(2 * tol, 1e-6))
        if tol == 1e-4:  # others follow rounding errors over hundreds of iterations
            assert abs(result.n_iter - twin.n_iter) <= 2 * LOOK_EVERY


@pytest.mark.parametrize("seed", range(4))
def test_a_run_of_rounding_errors_ends(seed):
    """At rank 1, iterations reach rounding level; no error falls from there by any share."""
    found = factorize_many([data(seed)], 1, tol=1e-18, max_iter=400, **OPTIONS)
    assert found[0].status is Status.CONVERGED


def test_the_pace_of_a_run_says_what_is_left():
    def ends(errors: list[float], tol: float) -> list[int]:
        history = np.array(errors)
        return [t for t in range(len(errors)) if has_settled(history[: t + 1], tol)]

    falling = [1 + 0.5**t for t in range(60)]
    assert ends(falling, 1e-3)[0] == 15  # 2⁻⁸ − 2⁻¹⁰ is more than .3 · 10⁻³, and 2⁻¹² − 2⁻¹⁵ less
    assert ends(falling, 1e-6)[0] == 30
    assert not ends(falling[:FIRST_LOOK], 1.0)
    assert not ends([1 / (1 + t) for t in range(100)], 1e-2)  # which fall for ever
    above = falling[:40] + 20 * [1.1]
    assert max(ends(above, 1e-3)) == 35  # an error above the least goes on
