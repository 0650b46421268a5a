"""Jobs as lanes of the compiled core: what single calls return, to the last bit."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer import Status, factorize, factorize_many
from factormer.many.jobs import jobs_of
from factormer.many.run import _ways
from factormer.penalties import Smooth
from tests.signals import interrupted_after


def data(m: int = 260, n: int = 240, r: int = 5, seed: int = 0, noise: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    V = rng.exponential(size=(m, r)) @ rng.exponential(size=(r, n))
    return V * rng.uniform(1 - noise, 1 + noise, (m, n))


def thinned(V: np.ndarray) -> Any:
    return scipy.sparse.csr_array(V * (np.random.default_rng(1).random(V.shape) < 0.2))


KINDS = {
    "dense": lambda V: V,
    "single": lambda V: V.astype(np.float32),
    "sparse": thinned,
    "columns": np.asfortranarray,
}


def ways(V: Any, ranks: Any, **options: Any) -> Any:
    given = {"n_init": 3, "resample": None, "random_state": 0, "missing": None, "device": None}
    asked = {key: options.pop(key, value) for key, value in given.items()}
    jobs = jobs_of(V, ranks, **asked, options=options)
    return _ways(jobs, list(range(len(jobs))))


@pytest.mark.parametrize("kind", KINDS)
def test_replicates_are_what_single_calls_return(kind):
    V = KINDS[kind](data())
    assert ways(V, [3, 5]).core == list(range(6))
    results = factorize_many(V, [3, 5], n_init=3, random_state=7)
    for k, result in enumerate(results):
        alone = factorize(V, 3 if k < 3 else 5, init="random", random_state=7 + k)
        np.testing.assert_array_equal(result.W, alone.W)
        np.testing.assert_array_equal(result.H, alone.H)
        np.testing.assert_array_equal(result.trace.rmse, alone.trace.rmse)
        assert result.status is alone.status is Status.CONVERGED
        dense = V.toarray() if scipy.sparse.issparse(V) else np.asarray(V, float)
        error = np.sqrt(np.mean((result.W @ result.H.T - dense) ** 2))
        assert result.rmse == pytest.approx(error, rel=1e-5)
        assert len(result.trace.rmse) == result.n_iter + 1


def test_all_iterations_are_made_where_tol_is_0():
    results = factorize_many(data(50, 40), 4, n_init=4, tol=0, max_iter=23)
    assert set(results.columns()["n_iter"]) == {23}
    assert {result.status for result in results} == {Status.MAX_ITER}
    assert all((np.diff(result.trace.rmse) < 1e-6).all() for result in results)


def test_exact_fits_are_found():
    V = data(40, 30, 2, noise=0)
    results = factorize_many(V, 2, n_init=3, tol=1e-10, max_iter=400)
    assert max(results.rmse) < 1e-6 * V.mean()


@pytest.mark.parametrize("unit", [1e-150, 1e-3, 1e90, 1e150])
def test_the_unit_of_v_does_not_matter(unit):
    V = data(40, 30)
    there = factorize_many(unit * V, 3, n_init=3, max_iter=40)
    here = factorize_many(V, 3, n_init=3, max_iter=40)
    np.testing.assert_allclose(there.rmse / unit, here.rmse, rtol=1e-5)


def test_zeros_are_no_trouble():
    results = factorize_many(np.zeros((30, 20)), 3, n_init=3)
    assert max(results.rmse) == 0


def test_time_runs_out_and_what_is_there_is_returned():
    V = data(400, 300)
    results = factorize_many(V, 5, n_init=40, tol=0, max_iter=50_000, time_limit=1.0)
    assert results.status in (None, Status.TIME_LIMIT)
    for k in np.flatnonzero(results.done):
        assert results[int(k)].status is Status.TIME_LIMIT
        assert np.isfinite(results[int(k)].rmse)


def test_other_requests_are_no_lanes():
    V = data(40, 30)
    assert ways(V @ V.T, 3, symmetric=True).core
    for options in ({}, {"init": "nndsvd"}, {"resample": "poisson"}, {"n_init": 1}):
        assert ways(V, 3, **options).core, options
    for options in ({"loss": "kullback-leibler"}, {"loss": 0.5, "solver": "newton"}):
        assert ways(V, 3, **options).core, options
    for options in ({"regularize_H": Smooth(0.1)}, {"solver": "mu"}):
        assert not ways(V, 3, **options).core, options


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")
@pytest.mark.parametrize("options", [{}, {"loss": "kullback-leibler"}], ids=["lanes", "counts"])
def test_ctrl_c_reaches_every_thread(options):
    begun = time.perf_counter()
    with two_threads(), interrupted_after(2.0):
        results = factorize_many(data(300, 250), 8, n_init=4, tol=0, max_iter=10**6, **options)
    assert results.status is Status.INTERRUPTED
    assert time.perf_counter() - begun < 30


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_threads_change_no_answer(loss):
    V = data(80, 60)
    one = factorize_many(V, [3, 4], n_init=2, loss=loss, max_iter=40)
    with two_threads():
        two = factorize_many(V, [3, 4], n_init=2, loss=loss, max_iter=40)
    np.testing.assert_allclose(one.rmse, two.rmse, rtol=1e-4 if loss != "frobenius" else 0)


@contextmanager
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)
