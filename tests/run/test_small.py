"""Small counts by compiled calls, beside what they stand for: the same plan by torch."""

from typing import Any

import numpy as np
import pytest
import torch

from factormer import factorize
from factormer.accelerate import newton
from factormer.data.intake import as_matrix
from factormer.data.observations import observe
from factormer.kernels import kullback_start
from factormer.penalties import L1
from factormer.run import execute, small
from factormer.run.choose import choose
from factormer.run.request import Request
from factormer.run.result import Status

RNG = np.random.default_rng(0)
COUNTS = {
    "square": RNG.poisson(RNG.gamma(0.5, 8, (96, 100))).astype(float),
    "tall": RNG.poisson(3.0, (150, 7)).astype(float),
    "wide": RNG.poisson(0.4, (5, 90)).astype(float),
    "thin": RNG.poisson(0.05, (60, 40)).astype(float),
    "empty lines": np.pad(RNG.poisson(4.0, (30, 20)).astype(float), ((2, 0), (0, 3))),
    "no counts": 1e-7 * RNG.random((40, 30)),
}
KULLBACK: dict[str, Any] = {"loss": "kullback-leibler"}


def plan_of(V, r, **asked):
    V = as_matrix(V) if isinstance(V, np.ndarray) else V
    return choose(Request.of(V, r, **{**KULLBACK, **asked}))


@pytest.fixture
def by_torch(monkeypatch):
    """Factorize by the slow twin."""

    def run(V, r, **asked):
        with monkeypatch.context() as patch:
            patch.setattr(small, "serves", lambda plan: False)
            return factorize(V, r, **KULLBACK, **asked)

    return run


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("r", [1, 3, 6])
@pytest.mark.parametrize(
    "asked",
    [
        {"max_iter": 6, "tol": 0},
        {"max_iter": 25, "tol": 0, "random_state": 2**40, "scale": "sum"},
        {"max_iter": 9, "tol": 1e-9, "order": None, "scale": None},
    ],
)
def test_compiled_calls_are_what_torch_makes_of_the_same_plan(name, r, asked, by_torch):
    V = COUNTS[name]
    assert small.serves(plan_of(V, r, **asked))
    ours, theirs = factorize(V, r, **KULLBACK, **asked), by_torch(V, r, **asked)
    np.testing.assert_allclose(ours.trace.rmse, theirs.trace.rmse, rtol=1e-7)
    np.testing.assert_allclose(
        ours.W @ ours.H.T, theirs.W @ theirs.H.T, rtol=1e-4, atol=1e-6 * V.max()
    )
    np.testing.assert_array_equal(ours.trace.passes, theirs.trace.passes)
    np.testing.assert_allclose(ours.trace.loss, theirs.trace.loss, rtol=1e-7)
    assert ours.status is theirs.status
    assert ours.plan == theirs.plan
    assert ours.trace.measure == theirs.trace.measure
    assert (np.diff(ours.trace.seconds) >= 0).all()
    assert ours.W.dtype == theirs.W.dtype


def test_it_stops_where_the_twin_stops(by_torch):
    V = COUNTS["square"]
    ours, theirs = factorize(V, 4, **KULLBACK), by_torch(V, 4)
    assert ours.status is theirs.status is Status.CONVERGED
    assert ours.n_iter == theirs.n_iter
    assert ours.rmse == pytest.approx(theirs.rmse, rel=1e-9)
    np.testing.assert_allclose(ours.W, theirs.W, atol=1e-5 * theirs.W.max())


def test_of_several_runs_the_best_is_kept(by_torch):
    asked: dict[str, Any] = {"max_iter": 4, "tol": 0, "n_init": 4}
    V = COUNTS["square"]
    ours, theirs = factorize(V, 6, **KULLBACK, **asked), by_torch(V, 6, **asked)
    np.testing.assert_allclose(ours.W, theirs.W, atol=1e-7 * theirs.W.max())
    np.testing.assert_allclose(ours.trace.rmse, theirs.trace.rmse, rtol=1e-7)


@pytest.mark.parametrize("tol", [0, 1e-6])
def test_the_error_is_that_of_the_factors_and_the_least_seen(tol):
    V = COUNTS["square"]
    x = factorize(V, 5, max_iter=40, tol=tol, **KULLBACK)
    y = x.W @ x.H.T
    loss = y.sum() - V.sum() + (V[V > 0] * np.log(V[V > 0] / y[V > 0])).sum()
    assert x.loss == pytest.approx(loss, rel=1e-9)
    assert x.rmse <= x.trace.rmse.min() * (1 + 1e-12)
    assert (np.diff(x.trace.rmse) <= 1e-9 * x.trace.rmse[1:]).all()


@pytest.mark.parametrize(
    "asked",
    [
        {"stop": "sklearn"},
        {"max_iter": 0},
        {"init": "random"},
        {"solver": "mu"},
        {"regularize_H": L1(0.1)},
        {"loss": 1.5},
    ],
)
def test_other_plans_go_the_long_way(asked):
    assert not small.serves(plan_of(COUNTS["square"], 4, **asked))


def test_other_data_goes_the_long_way():
    V = COUNTS["square"]
    assert not small.serves(plan_of(V.astype(np.float32), 4))
    assert not small.serves(plan_of(np.tile(V, (3, 1)), 4))
    assert not small.serves(plan_of(observe(np.where(V > 0, V, np.nan)), 4))
    assert not small.serves(plan_of(np.stack([V, V]), 4))


@pytest.mark.parametrize(
    "V",
    [
        np.zeros((12, 10)),
        1e-200 * COUNTS["square"],
        1e200 * COUNTS["square"],
        np.outer(np.arange(1.0, 13), np.arange(1.0, 11)),
    ],
    ids=["zeros", "tiny", "huge", "exact"],
)
def test_what_needs_more_care_goes_the_long_way(V, by_torch):
    asked: dict[str, Any] = {"max_iter": 12, "tol": 0}
    plan = plan_of(V, 2, **asked)
    assert small.serves(plan)
    assert small.fitted(plan, 0, 0.0) is None
    ours, theirs = factorize(V, 2, **KULLBACK, **asked), by_torch(V, 2, **asked)
    np.testing.assert_array_equal(ours.W, theirs.W)
    np.testing.assert_array_equal(ours.H, theirs.H)


def test_watchers_see_every_iteration_and_change_nothing():
    V, rows, looks = COUNTS["square"], [], []
    asked: dict[str, Any] = {"max_iter": 27, "tol": 1e-12, **KULLBACK}
    alone = factorize(V, 3, **asked)

    def watch(x, trace):
        looks.append((len(trace), x.W @ x.H.T))
        return False

    x = factorize(V, 3, callback=rows.append, watch=watch, time_limit=60.0, **asked)
    assert [row.iteration for row in rows] == list(range(28))
    assert [length for length, _ in looks] == [1, 6, 11, 16, 21, 26, 28]
    np.testing.assert_array_equal([float(row.rmse) for row in rows], alone.trace.rmse)
    np.testing.assert_array_equal(x.W, alone.W)
    losses = [float((y - torch.xlogy(torch.as_tensor(V), y)).sum()) for _, y in looks]
    assert (np.diff(losses) < 0).all()


def test_watchers_and_clocks_end_it():
    V, asked = COUNTS["square"], {"max_iter": 50, "tol": 0.0, **KULLBACK}
    over = factorize(V, 3, **{**asked, "tol": 1e-12}, watch=lambda x, trace: len(trace) > 15)
    assert over.status is Status.INTERRUPTED
    assert over.n_iter == 15
    late = factorize(V, 3, time_limit=1e-9, **asked)
    assert late.status is Status.TIME_LIMIT
    assert late.n_iter == 0

    def stop(row):
        if row.iteration == 12:
            raise KeyboardInterrupt

    over = factorize(V, 3, **{**asked, "tol": 1e-12}, callback=stop)
    assert over.status is Status.INTERRUPTED
    assert over.n_iter == 15


def test_none_draws_another_seed_each_time():
    V = COUNTS["square"]
    x, y = (factorize(V, 4, max_iter=2, tol=0, random_state=None, **KULLBACK) for _ in range(2))
    assert not np.allclose(x.W, y.W)


def test_an_interrupt_keeps_what_there_is(monkeypatch):
    V = COUNTS["square"]
    plan = plan_of(V, 4, max_iter=50, tol=1e-9)
    made = small.has_settled

    def interrupted(errors, tol):
        if len(errors) > 20:
            raise KeyboardInterrupt
        return made(errors, tol)

    monkeypatch.setattr(small, "has_settled", interrupted)
    x = execute.execute(plan)[0]
    assert x.status is Status.INTERRUPTED
    assert x.n_iter == 20
    assert torch.isfinite(x.factors.W).all()


def test_an_interrupt_within_iterations_tells_the_error_of_the_factors(monkeypatch):
    V, made, calls = COUNTS["square"], newton.Run.__call__, []

    def interrupted(self, n_iter):
        found = made(self, n_iter)
        calls.append(n_iter)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(newton.Run, "__call__", interrupted)
    x = factorize(V, 4, max_iter=50, tol=1e-9, **KULLBACK)
    y = x.W @ x.H.T
    loss = y.sum() - V.sum() + (V[V > 0] * np.log(V[V > 0] / y[V > 0])).sum()
    assert x.status is Status.INTERRUPTED
    assert x.loss == pytest.approx(loss, rel=1e-9)


def test_a_watch_may_fit_another_matrix_of_the_same_shape():
    V, asked = COUNTS["square"], {"max_iter": 30, "tol": 1e-12, **KULLBACK}

    def watch(x, trace):
        factorize(V[::-1], 3, **asked)
        return False

    alone, watched = factorize(V, 3, **asked), factorize(V, 3, watch=watch, **asked)
    np.testing.assert_array_equal(watched.W, alone.W)
    np.testing.assert_array_equal(watched.trace.rmse, alone.trace.rmse)


@pytest.mark.parametrize("entry", [0.0, 1e-170, 2.3e-162])
def test_no_entry_of_a_start_is_zero_however_small_its_component(entry):
    x = np.zeros((2, 7))
    x[0, [1, 5]], x[1] = entry, 1.0
    kullback_start._squared.py_func(x, 3, 0.01)  # pyright: ignore[reportFunctionMemberAccess]
    assert (x > 0).all()
    np.testing.assert_array_equal(x[1], 1.0)
