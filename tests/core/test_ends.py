"""Why and when runs end, and who may watch them."""

import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

from tests.core import reference
from tests.core.lanes import as_array, core, given, kinds, one, planted, rmse, run
from tests.signals import interrupted_after

LONG = {"max_iter": 2**31 - 1, "tol": 0.0}


@pytest.mark.parametrize("seed", range(3))
def test_converged_means_that_little_is_left_to_gain(seed):
    for V in (planted(80, 60, 5, seed=seed), 10 + planted(120, 90, 5, seed=seed)):
        stopped = one(V, 5, seed, max_iter=5000, tol=1e-4)
        longer = one(V, 5, seed, max_iter=8 * stopped.iterations, tol=0)
        assert stopped.status == "CONVERGED"
        assert reference.settled_at(stopped.errors, 1e-4) <= stopped.iterations
        assert stopped.error <= longer.error * (1 + 1e-3)


def test_no_tolerance_runs_to_the_limit_of_iterations():
    for V in (np.zeros((4, 3)), planted(9, 8, 2), planted(9, 8, 2, noise=0)):
        found = one(V, 2, max_iter=50, tol=0)
        assert (found.status, found.iterations, len(found.errors)) == ("MAX_ITER", 50, 51)


def test_an_exact_fit_converges_at_rounding():
    found = one(planted(40, 30, 3, noise=0), 3, max_iter=10**5, tol=1e-12)
    assert found.status == "CONVERGED"
    assert found.error < 1e-12


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_time_limit_ends_a_run(kind, precision):
    V = kinds()[kind]
    found = one(V, 4, seconds=0.05, threads=2, precision=precision, **LONG)
    assert found.status == "TIME_LIMIT"
    assert found.error == pytest.approx(rmse(V, found), rel=1e-3)
    assert found.errors[-1] <= found.errors[0]


def test_no_time_at_all_returns_the_start():
    V = planted(2000, 1500, 40)
    W, H = (np.random.default_rng(0).random((k, 40)) for k in V.shape)
    found = one(V, 40, start=(W, H), seconds=0, order=False, scale="none", **LONG)
    assert found.status == "TIME_LIMIT"
    if found.iterations == 0:
        np.testing.assert_array_equal(found.W, W)


def test_lanes_that_were_not_reached_return_their_starts():
    V = planted(60, 50, 4)
    found = run([V], [0] * 200, [4] * 200, range(200), seconds=0.05, threads=2, **LONG)
    assert {f.status for f in found} == {"TIME_LIMIT"}
    for f in found:
        assert np.isfinite(f.W).all()
        assert f.W.any()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(40, 30), (3000, 800)])
def test_ctrl_c_keeps_the_best_point(shape, threads):
    V = planted(shape[0], shape[1], 4)
    with interrupted_after(0.2):
        found = one(V, 4, threads=threads, **LONG)
    assert found.status == "INTERRUPTED"
    assert found.iterations > 0
    assert found.error == pytest.approx(rmse(V, found), rel=1e-6)


def test_ctrl_c_ends_a_list_of_lanes():
    V = planted(40, 30, 4)
    with interrupted_after(0.2):
        found = run([V], [0] * 50, [4] * 50, range(50), threads=2, **LONG)
    assert {f.status for f in found} == {"INTERRUPTED"}


def test_who_watches_may_end_the_run_and_sees_its_point():
    V, seen, rows_seen = planted(40, 30, 4), [], []

    def watch(lane, iteration, error, W, H, rows):
        rows_seen.append(rows)
        seen.append((lane, iteration, error, float(np.sqrt(np.mean((V - W @ H.T) ** 2)))))
        return iteration >= 20

    found = one(V, 4, callback=watch, **LONG)
    assert (found.status, found.iterations) == ("INTERRUPTED", 20)
    assert [row[:2] for row in seen] == [(0, 5), (0, 10), (0, 15), (0, 20)]
    assert [len(rows) for rows in rows_seen] == [6, 5, 5, 5]
    np.testing.assert_array_equal(np.concatenate(rows_seen)[:, 0], found.errors)
    for _, _, error, true in seen:
        assert error == pytest.approx(true, rel=1e-9)


def test_an_exception_of_who_watches_arrives():
    def watch(*_):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        one(planted(40, 30, 4), 4, callback=watch, threads=2, **LONG)


def test_who_watches_may_call_the_core():
    V, inner = planted(400, 300, 6), []
    alone = one(V, 6, max_iter=20)

    def watch(*_):
        inner.append(one(V, 6, max_iter=20, threads=2).bits())

    assert one(V, 6, max_iter=20, threads=2, callback=watch).bits() == alone.bits()
    assert set(inner) == {alone.bits()}


def test_numbers_that_overflow_end_a_run():
    V = planted(20, 10, 2)
    start = (np.full((20, 2), 1e200), np.full((10, 2), 1e200))
    found = one(V, 2, start=start, fixed=([0], []), max_iter=10)  # or it would be scaled
    assert found.status == "NONFINITE"
    assert np.isfinite(found.W).all()


@pytest.mark.parametrize("sizes", [(1e200, 1e200), (1e-200, 1e-200), (1e150, 1e-150), (1e-3, 1e9)])
def test_a_start_of_another_size_is_brought_to_that_of_v(sizes):
    V, rng = planted(20, 10, 2), np.random.default_rng(0)
    start = tuple(size * rng.random((n, 2)) for size, n in zip(sizes, V.shape, strict=True))
    found = one(V, 2, start=start, max_iter=200)
    assert found.status == "CONVERGED"
    assert found.error < 0.2 * V.mean()


def test_several_threads_of_python_may_call_at_once():
    V = planted(300, 200, 6)
    expected, found = one(V, 6, max_iter=30).bits(), []
    threads = [
        threading.Thread(target=lambda: found.append(one(V, 6, max_iter=30, threads=2).bits()))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8
    assert core.threads() >= 1


@pytest.mark.parametrize("precision", ["float64", "mixed"])
def test_an_exact_fit_ends_in_double_precision(precision):
    found = one(planted(40, 30, 3, noise=0), 3, max_iter=10**5, tol=1e-4, precision=precision)
    assert found.status == "CONVERGED"
    assert found.error < 1e-7


def test_errors_of_coarser_stages_end_where_the_next_begins():
    V = planted(60, 45, 5)
    U, Z, lost = core.sketch(V, 12, seed=3)
    coarse = one(("low-rank", U, Z), 5, max_iter=30, tol=0, order=False, scale="none")
    earlier = np.stack([coarse.errors, np.zeros(31)], axis=1)
    _, _, kept, [(_, made, *_)] = core.run(
        [V], [0], [5], [0], [(coarse.W, coarse.H)], earlier=[earlier], max_iter=40, tol=0.0
    )
    assert (made, len(kept)) == (40, 41)
    assert kept[30, 0] == pytest.approx(np.sqrt(np.mean((V - coarse.W @ coarse.H.T) ** 2)))
    assert (np.diff(kept[:, 0]) <= 0).all()
    assert lost == pytest.approx(((V - U @ Z.T) ** 2).sum(), rel=1e-6)


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_sketch_nearly_spans_the_matrix(kind, precision):
    V = kinds()[kind]
    U, Z, lost = core.sketch(given(V), 15, seed=1, precision=precision)
    A = as_array(V)
    left = np.linalg.svd(A, compute_uv=False)[15:]
    digits = 1e-4 if precision == "float32" else 1e-10
    np.testing.assert_allclose(U.T @ U, np.eye(15) * (np.abs(U).sum(axis=0) > 0), atol=digits)
    assert ((A - U @ Z.T) ** 2).sum() <= 1.2 * (left**2).sum() + digits * (A**2).sum()
    assert lost == pytest.approx(((A - U @ Z.T) ** 2).sum(), abs=digits * (A**2).sum())


def test_lanes_that_begin_too_late_stay_at_their_starts():
    V, given_start = planted(50, 40, 4), (np.full((50, 3), 2.0), np.full((40, 3), 3.0))
    starts = [None, "rotated", given_start]
    found = run([V], [0] * 3, [3] * 3, [5, 6, 7], starts=starts, seconds=0, **LONG)
    assert {(f.status, f.iterations, f.error) for f in found} == {("TIME_LIMIT", 0, np.inf)}
    for lane, seed in zip(found, (5, 6), strict=False):
        W, H = reference.random_start(V, 3, seed)
        np.testing.assert_allclose(lane.W, W, rtol=1e-12)
        np.testing.assert_allclose(lane.H, H, rtol=1e-12)
    np.testing.assert_array_equal(found[2].W, given_start[0])
    np.testing.assert_array_equal(found[2].H, given_start[1])


@pytest.mark.parametrize(
    "rules",
    [{"start": "rotated"}, {"start": "rotated", "precision": "mixed"}, {"finish": "exact"}],
    ids=str,
)
def test_small_dense_algebra_of_a_high_rank_ends_in_time(rules):
    """Eigenvectors and Cholesky factors of rank 1 000 take several times this limit."""
    rng, r = np.random.default_rng(0), 1000
    V = rng.random((1100, 1050))
    if "finish" in rules:
        rules = rules | {"start": (np.ones((1100, r)), rng.random((1050, r))), "max_iter": 0}
    begun = time.perf_counter()
    found = one(V, r, seconds=0.5, **{"tol": 0.0, "max_iter": 10**6} | rules)
    assert found.status == "TIME_LIMIT"
    assert time.perf_counter() - begun < 6


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize(("value", "sentence"), [(np.nan, "NaN"), (-1.0, "negative")])
def test_entries_by_columns_are_looked_at_like_those_by_rows(half, value, sentence):
    parts = list(given(sp.csr_matrix(planted(12, 9, 3))))
    parts[5 + 3 * half] = parts[5 + 3 * half].copy()
    parts[5 + 3 * half][5] = value
    with pytest.raises(ValueError, match=sentence):
        core.run([tuple(parts)], [0], [2], [0])
