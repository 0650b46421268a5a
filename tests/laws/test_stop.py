"""Every way to factorize ends where the reference does, also where only rounding errors are left.

The ways of one V on the chip of a GPU are in `tests/kernels/test_chip_text.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factormer import Status, factorize, factorize_many
from factormer.kernels.rules import EVERY, LOOKS
from factormer.run import stop

WAYS = ("whole", "shared")


def data(seed: int, m: int = 30, n: int = 20) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.outer(rng.random(m), rng.random(n)) * (0.5 + rng.random((m, n)))


@pytest.fixture(params=WAYS)
def many(request, monkeypatch) -> Any:
    """A function that factorizes V twice in one way."""
    if request.param == "shared":
        monkeypatch.setattr("factormer.many.whole.serves", lambda plan: False)
        return lambda V, rank, **options: factorize_many(V, rank, n_init=2, **options)
    return lambda V, rank, **options: factorize_many(
        [V, V], rank, init="random", solver="her", **options
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("rank", "tol", "most"),
    [(1, 1e-4, 60), (1, 1e-15, 200), (2, 1e-3, 1000), (3, 1e-15, 1000)],
)
def test_runs_end_where_the_reference_does(many, seed, rank, tol, most):
    V = data(seed)
    results = many(V, rank, tol=tol, max_iter=most, random_state=seed)
    for k, result in enumerate(results):
        alone = factorize(
            V, rank, init="random", solver="her", tol=tol, max_iter=most, random_state=seed + k
        )
        assert result.status is alone.status
        assert result.rmse == pytest.approx(alone.rmse, rel=1e-6)
        if rank == 1:  # others amplify rounding errors over hundreds of iterations
            assert abs(result.n_iter - alone.n_iter) <= EVERY
            assert result.status is Status.CONVERGED


@pytest.mark.parametrize("seed", range(4))
def test_a_gradient_of_rounding_errors_ends_before_a_stall_would(many, seed):
    """At rank 1 power iterations reach rounding level; no share of the gradient is reached then."""
    results = many(data(seed), 1, tol=1e-18, max_iter=200)
    assert {result.status for result in results} == {Status.CONVERGED}
    assert max(result.n_iter for result in results) < LOOKS * EVERY


def test_plain_numbers_and_tensors_follow_one_rule():
    looks = stop.Looks(1e-3, 2.0**-52)
    errors = [1.0, 0.5] + 10 * [0.25]
    ends = [looks.is_over(1e-8 * 10 ** (-k / 100), error) for k, error in enumerate(errors)]
    assert not any(ends[: LOOKS + 2])
    assert stop.Looks(1e-3, 2.0**-52).is_over(0.0, 1.0)
    assert stop.Looks(1e-3, 2.0**-52).is_over(1.0, 1e-17)
    assert stop.Looks(1e-3, 2.0**-52).is_over(1e-15, 1.0, norms=10.0)
    assert not stop.Looks(0.0, 2.0**-52).is_over(0.0, 0.0)
