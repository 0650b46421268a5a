"""factorize_many: what a single call would return, whatever the batch; and nothing is lost."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from factormer import Results, Status, factorize, factorize_many
from factormer.data.intake import as_matrix
from factormer.many.resample import resampled
from tests.signals import interrupted_after

Seeds = st.integers(0, 2**32)


def problem(m: int, n: int, r: int, seed: int, noise: float = 0.2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    V = rng.exponential(size=(m, r)) @ rng.exponential(size=(r, n))
    return V * rng.uniform(1 - noise, 1 + noise, (m, n))


def agree(many: Any, alone: Any, rel: float = 1e-6) -> None:
    assert many.rmse == pytest.approx(alone.rmse, rel=rel)
    assert many.status is alone.status
    np.testing.assert_allclose(many.W @ many.H.T, alone.W @ alone.H.T, rtol=1e-4, atol=1e-6)
    assert many.W.dtype == alone.W.dtype


shapes = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), Seeds)


@given(st.lists(shapes, min_size=1, max_size=6), st.sampled_from(["share", None]), Seeds)
def test_batch_is_single(sizes, order, seed):
    problems = [problem(*size) for size in sizes]
    ranks = [size[2] for size in sizes]
    results = factorize_many(problems, ranks, order=order, random_state=seed, max_iter=60)
    assert isinstance(results, Results)
    for k, (V, rank) in enumerate(zip(problems, ranks, strict=True)):
        agree(results[k], factorize(V, rank, order=order, random_state=seed + k, max_iter=60), 1e-5)


def test_every_iteration_is_that_of_a_single_call():
    V = problem(50, 40, 6, 0)
    (many,) = factorize_many([V], 6, tol=0, max_iter=37, random_state=5)
    alone = factorize(V, 6, tol=0, max_iter=37, random_state=5)
    np.testing.assert_allclose(many.trace.rmse, alone.trace.rmse, rtol=1e-9)
    np.testing.assert_allclose(many.W, alone.W, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(many.H, alone.H, rtol=1e-6, atol=1e-9)
    assert many.loss == pytest.approx(alone.loss)
    assert many.n_iter == alone.n_iter == 37
    assert str(many.plan) == str(alone.plan)


@pytest.mark.parametrize("scale", ["balanced", "sum", None])
@pytest.mark.parametrize("order", ["share", None])
def test_order_and_scale_are_those_of_a_single_call(order, scale):
    V = problem(20, 30, 4, 1)
    (many,) = factorize_many([V], [4], order=order, scale=scale)
    alone = factorize(V, 4, order=order, scale=scale)
    np.testing.assert_allclose(many.W, alone.W, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(many.H, alone.H, rtol=1e-4, atol=1e-7)


def test_problems_of_every_kind_and_size():
    dense = problem(30, 20, 3, 2)
    gaps = dense.copy()
    gaps[3, 4] = np.nan
    sparse = scipy.sparse.random_array((40, 30), density=0.2, rng=np.random.default_rng(0))
    large = problem(300, 200, 5, 3)
    single = dense.astype(np.float32)
    problems = [dense, gaps, sparse, large, single, np.zeros((4, 5)), np.ones((1, 1))]
    results = factorize_many(problems, 3, max_iter=50)
    for k, V in enumerate(problems):
        agree(results[k], factorize(V, 3, max_iter=50, random_state=k), 1e-4)


@pytest.mark.parametrize("loss", ["kullback-leibler", "itakura-saito", 1.5])
def test_other_losses(loss):
    problems = [problem(12, 10, 2, k) for k in range(3)]
    results = factorize_many(problems, 2, loss=loss, max_iter=30)
    for k, V in enumerate(problems):
        agree(results[k], factorize(V, 2, loss=loss, max_iter=30, random_state=k))


def test_an_exact_fit_is_finished_by_a_single_call():
    problems = [problem(20, 15, 2, k, noise=0) for k in range(3)]
    results = factorize_many(problems, 2, tol=1e-12, max_iter=400)
    for k, V in enumerate(problems):
        alone = factorize(V, 2, tol=1e-12, max_iter=400, random_state=k)
        assert results[k].rmse == pytest.approx(alone.rmse, rel=1e-3, abs=1e-12)


def test_tables_of_exact_fits_and_of_nothing():
    results = factorize_many([np.ones((5, 4)), 1e-120 * problem(6, 5, 2, 0)], 2)
    assert results.columns()["status"].tolist() == [result.status.name for result in results]
    assert "2 factorizations" in repr(results)
    nothing = factorize_many(problem(9, 8, 2, 0), [2, 3], time_limit=1e-9)
    assert nothing.columns()["status"].tolist() == ["MISSING", "MISSING"]
    assert "missing" in repr(nothing)


def test_each_problem_gets_its_factors_in_its_kind():
    V = problem(12, 9, 2, 0)
    first, second = factorize_many([V, torch.from_numpy(V)], 2)
    assert isinstance(first.W, np.ndarray)
    assert isinstance(second.W, torch.Tensor)


def test_results_do_not_change_by_what_is_done_with_them():
    results = factorize_many([problem(12, 9, 2, 0)], 2)
    results[0].W[:] = 7
    results.columns()["rank"][:] = 99
    assert results[0].W.max() < 7
    assert results.columns()["rank"].tolist() == [2]


def test_threads_of_torch_are_as_before():
    before = torch.get_num_threads()
    factorize_many([problem(30, 20, 3, k) for k in range(50)], 3)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert torch.get_num_threads() == before
    assert seen == [before]


def test_any_number_of_iterations():
    V = problem(12, 9, 2, 0)
    (many,) = factorize_many([V], 2, max_iter=10**12)
    agree(many, factorize(V, 2, max_iter=10**12))


def test_one_matrix_at_every_rank_and_from_every_start():
    V = problem(30, 20, 3, 4)
    results = factorize_many(V, range(2, 5), n_init=3, random_state=7)
    columns = results.columns()
    assert columns["rank"].tolist() == [2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert columns["run"].tolist() == [0, 1, 2] * 3
    assert columns["seed"].tolist() == list(range(7, 16))
    for k, result in enumerate(results):
        assert result.W.shape == (30, columns["rank"][k])
        assert result.rmse == pytest.approx(columns["rmse"][k])
        assert result.n_iter == columns["n_iter"][k]
        assert result.status.name == columns["status"][k]
    agree(results[4], factorize(V, 3, init="random", random_state=11))


def test_runs_differ_and_a_stack_is_a_list():
    V = np.stack([problem(15, 12, 3, k) for k in range(4)])
    stack, listed = factorize_many(V, 3), factorize_many(list(V), 3)
    assert len(stack) == 4
    np.testing.assert_allclose(stack.rmse, listed.rmse)
    runs = factorize_many(V[0], 3, n_init=4)
    assert len(np.unique(np.round(runs.rmse, 9))) > 1


def test_as_completed_yields_each_once():
    problems = [problem(10 + k, 12, 2, k) for k in range(9)]
    pairs = dict(factorize_many(problems, 2, as_completed=True))
    assert sorted(pairs) == list(range(9))
    results = factorize_many(problems, 2)
    for k, result in pairs.items():
        assert result.rmse == results[k].rmse


def test_tensors_stay_tensors():
    V = torch.from_numpy(problem(12, 9, 2, 0))
    (result,) = factorize_many([V], 2)
    assert isinstance(result.W, torch.Tensor)


@pytest.mark.parametrize("kind", ["poisson", "bootstrap"])
def test_resampled_data_is_drawn_by_the_seed(kind):
    V = np.round(20 * problem(15, 10, 2, 0))
    results = factorize_many(V, [2], n_init=3, resample=kind)
    matrix: Any = as_matrix(V)
    for k in range(3):
        again: Any = resampled(matrix, kind, k)
        drawn = again.entries.numpy()
        agree(results[k], factorize(drawn, 2, init="random", random_state=k))
        assert not np.array_equal(drawn, V)
        if kind == "bootstrap":
            rows = {tuple(row) for row in V}
            assert all(tuple(row) in rows for row in drawn)


@pytest.mark.parametrize("seed", [0, 7, 2**62 + 1])
def test_small_problems_begin_where_single_calls_do(seed):
    V = 1e6 * problem(30, 21, 4, 0)
    (many,) = factorize_many([V], 5, max_iter=3, tol=0, random_state=[seed])
    alone = factorize(V, 5, max_iter=3, tol=0, random_state=seed)
    np.testing.assert_allclose(many.trace.rmse, alone.trace.rmse, rtol=1e-9)


def test_table_has_a_row_for_each():
    pandas = pytest.importorskip("pandas")
    table = factorize_many(problem(10, 8, 2, 0), [1, 2], n_init=2).table()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == [
        "problem",
        "rank",
        "run",
        "seed",
        "rmse",
        "loss",
        "n_iter",
        "status",
    ]
    assert len(table) == 4


def test_time_limit_keeps_what_is_done():
    problems = [problem(300, 250, 8, k) for k in range(40)]
    begun = time.perf_counter()
    results = factorize_many(problems, 8, tol=0, max_iter=3000, time_limit=0.3)
    assert time.perf_counter() - begun < 20
    assert results.status is Status.TIME_LIMIT
    missing = int(np.flatnonzero(~results.done)[0])
    with pytest.raises(LookupError, match=f"job {missing} .* was not done"):
        results[missing]
    assert "missing" in repr(results)
    assert results.columns()["status"][missing] == "MISSING"


def test_time_that_runs_out_is_no_interruption():
    V = problem(300, 250, 8, 0)
    for limit in np.linspace(0.02, 0.06, 10):
        results = factorize_many(V, [8], tol=0, max_iter=1_000_000, time_limit=float(limit))
        assert results.status is not Status.INTERRUPTED
        assert not results.done[0] or results[0].status is Status.TIME_LIMIT


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")
def test_ctrl_c_keeps_what_is_done():
    some = [problem(90, 80, 8, k) for k in range(10)]
    with interrupted_after(3.0):
        results = factorize_many(300 * some, 8, tol=0, max_iter=3000)
    assert results.status is Status.INTERRUPTED
    assert not results.done.all()


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (([], 2), {}, "problems is empty"),
        ((np.ones((3, 3)),), {}, "ranks is missing"),
        (([np.ones((3, 3))], [2, 3]), {}, "ranks has 2 numbers for 1 problems"),
        (([np.ones((3, 3)), -np.ones((3, 3))], 2), {}, "problem 1: Negative values"),
        (([np.ones((3, 3))], 0), {}, "rank is 0"),
        (([np.ones((3, 3))], 2.5), {}, "rank is 2.5"),
        ((np.ones((3, 3)), []), {}, "ranks is"),
        (([np.ones((3, 3))], 2), {"n_init": 0}, "n_init is 0"),
        (([np.ones((3, 3))], 2), {"resample": "jackknife"}, "resample is 'jackknife'"),
        (([np.ones((3, 3))], 2), {"tol": -1}, "tol"),
        (([np.ones((3, 3))], 2), {"time_limit": -1}, "time_limit"),
        (([np.ones((2, 3, 3))], 2), {}, "problem 0 has shape"),
        (([np.ones((3, 3))], "auto"), {}, "ranks is 'auto'"),
        (([np.ones((3, 3))] * 3, 2), {"random_state": 2**63 - 2}, "random_state is"),
        ((1e25 * np.ones((3, 3)), 2), {"resample": "poisson"}, "means of at most"),
        ((scipy.sparse.eye_array(3), 2), {"resample": "poisson"}, "problem 0 is sparse"),
        (([np.ones((3, 3))], 2), {"as_completed": True, "progress": True}, "shows no progress"),
        (([np.ones((3, 3)), np.eye(3)], 2), {"loss": "itakura-saito"}, "problem 1: "),
    ],
)
def test_errors_are_sentences(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        factorize_many(*arguments, **options)


def test_an_unknown_keyword_is_named():
    with pytest.raises(TypeError, match="no keyword 'callback'"):
        factorize_many([np.ones((3, 3))], 1, callback=print)


def test_progress_shows_a_bar(capsys):
    factorize_many([problem(8, 8, 2, k) for k in range(3)], 2, progress=True)
    assert "3/3" in capsys.readouterr().out


def test_seeds_may_be_given_one_by_one():
    V, seeds = problem(12, 10, 3, 1), [7, 7, 123_456_789_012]
    results = factorize_many(V, [2, 3, 2], random_state=seeds)
    assert results.columns()["seed"].tolist() == seeds
    for result, rank, seed in zip(results, (2, 3, 2), seeds, strict=True):
        agree(result, factorize(V, rank, random_state=seed), 1e-5)


@pytest.mark.parametrize("seeds", [[1], [1, 2, 3], np.arange(4)], ids=str)
def test_seeds_that_are_too_few_or_many_are_refused(seeds):
    with pytest.raises(ValueError, match=r"random_state has \d numbers for 2 jobs"):
        factorize_many(np.ones((4, 4)), [1, 2], random_state=seeds)
