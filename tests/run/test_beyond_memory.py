"""factorize and NMF on data beyond memory: the same answer in few passes, within limits."""

import re
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from factormer import NMF, explain, factorize, select_rank
from factormer.data.outofcore import blocks_of
from factormer.data.sources import Source, source_of

M, N, R = 400, 150, 4
LIMIT = "900kB"


def entries(dtype=np.float64):
    rng = np.random.default_rng(1)
    W, H = rng.exponential(size=(M, R)), rng.exponential(size=(N, R))
    return (W @ H.T + rng.random((M, N))).astype(dtype)


@pytest.fixture
def stored(tmp_path):
    def store(V):
        np.save(tmp_path / "V.npy", V)
        return np.load(tmp_path / "V.npy", mmap_mode="r")

    return store


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_answer_is_that_in_memory_in_few_passes(stored, dtype):
    V = entries(dtype)
    source = source_of(stored(V))
    assert source is not None
    B: Any = blocks_of(source, 9e5 * dtype().itemsize / 8)
    assert len(B.reader.ends) > 3
    result = factorize(B, R)
    inside = factorize(V, R)
    assert result.rmse == pytest.approx(inside.rmse, rel=1e-3)
    residual = V.astype(float) - result.W.astype(float) @ result.H.T
    assert result.rmse == pytest.approx(float(np.sqrt(np.mean(residual**2))), rel=1e-4)
    assert result.W.dtype == dtype
    assert B.record.passes == result.trace.passes[-1]
    assert B.record.passes <= 10
    assert B.reader.traffic.n_bytes == B.record.passes * V.nbytes
    on_v = result.trace.passes > 2  # before, errors are those on the sketch
    assert result.trace.rmse[on_v][0] < 1.01 * inside.rmse
    assert result.trace.passes[on_v].tolist() == list(range(3, result.trace.passes[-1] + 1))


def test_the_same_seed_gives_the_same_answer(stored):
    V = stored(entries())
    first, second = (factorize(V, R, memory_limit=LIMIT) for _ in range(2))
    np.testing.assert_array_equal(first.W, second.W)
    assert isinstance(first.W, np.ndarray)


def test_the_plan_says_what_happens(stored):
    text = str(explain(stored(entries()), R, memory_limit=LIMIT))
    assert "blocks" in text
    assert "her on a sketch of V" in text
    assert "passes on V: one pass over V an iteration" in text


def test_without_a_limit_small_files_are_loaded(stored):
    V = entries()
    assert "dense" in str(explain(stored(V), R))
    np.testing.assert_array_equal(factorize(stored(V), R).W, factorize(V, R).W)


def test_tol_0_makes_all_iterations_and_few_passes(stored):
    result = factorize(stored(entries()), R, memory_limit=LIMIT, tol=0, max_iter=30)
    assert result.n_iter == 30
    assert result.trace.passes[-1] == 5


def test_restarts_share_the_sketch(stored):
    source = source_of(stored(entries()))
    assert source is not None
    B = blocks_of(source, LIMIT)
    factorize(B, R, n_init=3, tol=0, max_iter=20)
    assert B.record.passes == 2 + 3 * 3


def test_a_given_start_and_other_solvers_work(stored):
    V = entries()
    rng = np.random.default_rng(0)
    W, H = rng.random((M, R)), rng.random((N, R))
    inside = factorize(V, R)
    given = factorize(stored(V), R, memory_limit=LIMIT, init="custom", W=W, H=H)
    hals = factorize(stored(V), R, memory_limit=LIMIT, solver="hals", max_iter=60)
    assert given.rmse == pytest.approx(inside.rmse, rel=1e-2)
    assert hals.rmse == pytest.approx(inside.rmse, rel=2e-2)


def test_the_estimator_takes_files_and_its_w_is_that_of_transform(stored):
    V = entries()
    model = NMF(R, random_state=0, memory_limit=LIMIT)
    W = model.fit_transform(stored(V))
    assert model.components_.shape == (R, N)
    assert model.reconstruction_err_ == pytest.approx(
        np.linalg.norm(V - W @ model.components_), rel=1e-6
    )
    np.testing.assert_allclose(model.transform(stored(V)), W, atol=1e-8 * W.max())
    np.testing.assert_allclose(model.transform(V), W, atol=1e-8 * W.max())
    assert model.trace_.passes[-1] >= 3


@pytest.mark.parametrize("more", [{}, {"step": 40}, {"ends": (0, 50, 90, M)}])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_the_limit_that_is_said_to_be_enough_is_enough(more, loss):
    V = entries()
    source = Source(lambda a, b: V[a:b], (M, N), V.dtype, "test", float(V.size), **more)
    low = blocks_of(source, 3 * V.nbytes)
    low = replace(low, reader=replace(cast(Any, low.reader), room=1000.0))
    with pytest.raises(ValueError, match=r"leaves 1e\+03.* lower rank \(.*MB are enough") as found:
        explain(low, R, loss=loss)
    said = re.findall(r"\(([0-9.]+MB) are enough\)", str(found.value))
    assert len(said) == 1
    explain(blocks_of(source, said[0]), R, loss=loss)


def test_what_is_not_supported_is_refused_before_anything_is_read(stored):
    V = stored(entries())
    cases = [
        ({"loss": "itakura-saito"}, "β between 1 and 2"),
        ({"mask": np.ones((M, N))}, "mask, weights and missing are not supported"),
        ({"init": "init-r10"}, "without learned starts"),
        ({"memory_limit": "500kB"}, "raise it, or choose a lower rank"),
        ({"memory_limit": "much"}, "memory_limit is 'much'"),
    ]
    for options, words in cases:
        with pytest.raises(ValueError, match=words):
            factorize(V, R, **({"memory_limit": LIMIT} | options))


def test_an_interruption_keeps_the_best_point(stored):
    def stop(row):
        if row.passes >= 4:
            raise KeyboardInterrupt

    result = factorize(stored(entries()), R, memory_limit=LIMIT, tol=1e-9, callback=stop)
    assert result.status.name == "INTERRUPTED"
    assert result.trace.passes[-1] == 4
    assert np.isfinite(result.rmse)


@pytest.mark.parametrize("solver", ["her", "hals", "ahead", "mu", "ao-admm"])
def test_passes_in_memory_are_two_an_iteration_at_least(solver):
    trace = factorize(torch.from_numpy(entries()), R, solver=solver, tol=0, max_iter=20).trace
    each = np.diff(trace.passes)
    assert (each[1:] >= 2).all()
    assert (each[1:] <= 3).all()


def test_iterations_on_a_sketch_in_memory_read_nothing():
    rng = np.random.default_rng(0)
    V = rng.random((900, 300)) @ np.diag(rng.random(300))
    trace = factorize(V, 5, tol=0, max_iter=30).trace
    assert (np.diff(trace.passes)[:6] == 0).all()
    assert trace.passes[-1] > trace.passes[6]


def test_a_rank_is_chosen_in_one_pass(stored):
    source = source_of(stored(entries()))
    assert source is not None
    B = blocks_of(source, "5MB")
    assert select_rank(B, range(2, 8)).rank in (R, R + 1)  # noise of mean 1/2 is one more
    assert B.record.passes == 1


def test_a_matrix_of_zeros_gives_factors_of_zeros(stored):
    result = factorize(stored(np.zeros((M, N))), R, memory_limit=LIMIT)
    assert result.status.name == "CONVERGED"
    assert not result.W.any()
    assert result.W.shape == (M, R)
