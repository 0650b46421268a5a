"""Time limits and Ctrl-C: every result that is there can be looked at, in every way to make it."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from factormer import Results, Status, consensus, factorize_many
from factormer.many.jobs import jobs_of
from factormer.many.run import _ways
from tests.signals import interrupted_after

RNG = np.random.default_rng(0)
SMALL = [RNG.random((30, 20)) for _ in range(40)]
LARGE = RNG.random((300, 250))

WAYS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "small": ("core", SMALL, {}),
    "replicates": ("core", LARGE, {"n_init": 60}),
    "sparse": ("core", scipy.sparse.random_array((300, 250), density=0.1, rng=1), {"n_init": 60}),
    "single": ("core", LARGE.astype(np.float32), {"n_init": 60}),
    "counts": ("core", LARGE, {"n_init": 20, "loss": "kullback-leibler"}),
    "resampled": ("core", LARGE, {"n_init": 20, "resample": "poisson"}),
    "multiplicative": ("alone", SMALL, {"solver": "mu"}),
}


@pytest.fixture(params=WAYS)
def asked(request) -> tuple[Any, dict[str, Any]]:
    """Problems and options of one way."""
    way, V, options = WAYS[request.param]
    given = {"n_init": 1, "resample": None, "random_state": 0, "missing": None, "device": None}
    common = given | {name: options[name] for name in given if name in options}
    others = {name: value for name, value in options.items() if name not in given}
    jobs = jobs_of(V, 8, **common, options=others)
    assert getattr(_ways(jobs, list(range(len(jobs)))), way)
    return V, options


def looked_at(results: Results) -> None:
    for k in np.flatnonzero(results.done):
        result = results[int(k)]
        assert len(result.trace) == result.n_iter + 1 >= 1
        assert np.isfinite(result.rmse)
        assert np.isfinite(result.trace.rmse).all()
        assert np.isfinite(result.W).all()
        assert result.plan is not None
        assert str(result)
    for k in np.flatnonzero(~results.done):
        with pytest.raises(LookupError, match="done"):
            results[int(k)]
    assert len(results.table()) == len(results)


@pytest.mark.parametrize("seconds", [1e-12, 1e-3, 0.05, 0.3])
def test_results_under_a_time_limit_can_be_looked_at(asked, seconds):
    V, options = asked
    looked_at(factorize_many(V, 8, time_limit=seconds, tol=0, max_iter=2000, **options))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")
@pytest.mark.parametrize("seconds", [0.02, 0.2])
def test_results_after_ctrl_c_can_be_looked_at(asked, seconds):
    V, options = asked
    factorize_many(V, 8, max_iter=1, tol=0, **options)  # which compiles
    with interrupted_after(seconds):
        try:
            results = factorize_many(V, 8, tol=0, max_iter=90_000, **options)
        except KeyboardInterrupt:  # which came before the first job was made
            return
    looked_at(results)
    assert results.done.all() or results.status is Status.INTERRUPTED


def test_no_time_at_all_is_refused():
    with pytest.raises(ValueError, match="time_limit"):
        factorize_many(LARGE, 8, time_limit=0)


@pytest.mark.parametrize("seconds", [1e-12, 0.05, 1.0])
def test_a_consensus_of_what_is_done_or_a_sentence(seconds):
    try:
        found = consensus(LARGE, 8, n_runs=60, time_limit=seconds)
    except TimeoutError as error:
        assert "allow more time" in str(error)  # noqa: PT017 — either end is right
    else:
        assert found.W.shape == (300, 8)
