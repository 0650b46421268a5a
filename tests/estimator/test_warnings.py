"""Warnings point at the line that called, and tell of an end before the tolerance, not else."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from factormer import NMF, factorize, non_negative_factorization
from factormer.run.result import Status
from factormer.solvers.coding import Coder

X = np.random.default_rng(0).random((30, 20))
SHORT: dict[str, Any] = {"n_components": 3, "max_iter": 1, "tol": 1e-9, "random_state": 0}
HASTY: dict[str, Any] = {"n_components": 3, "time_limit": 1e-9, "random_state": 0}

CALLS: dict[str, Callable[[], Any]] = {
    "fit": lambda: NMF(**SHORT).fit(X),
    "fit_transform": lambda: NMF(**SHORT).fit_transform(X),
    "out of time": lambda: NMF(**HASTY).fit(X),
    "transform": lambda: FITTED.transform(X),
    "set_output": lambda: NMF(**SHORT).set_output(transform="pandas").fit_transform(X),
    "pipeline": lambda: make_pipeline(MaxAbsScaler(), NMF(**SHORT)).fit(X),
    "function": lambda: non_negative_factorization(X, **SHORT),
    "zeros": lambda: NMF(3, init="nndsvd", solver="mu", tol=0.0, max_iter=1).fit(X),
    "ignored start": lambda: NMF(3, tol=0.0, max_iter=1).fit(X, W=X[:, :3]),
    "unused W": lambda: non_negative_factorization(X, X[:, :3], X[:3], update_H=False),
    "loss": lambda: factorize(1e-200 * X, 2, tol=0.0, max_iter=1).loss,
}
FITTED = NMF(3, random_state=0).fit(X).set_params(time_limit=1e-9)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("call", CALLS)
def test_warnings_point_at_the_caller(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        CALLS[call]()
    assert [warning.filename for warning in seen] == [__file__]
    assert seen[0].lineno == CALLS[call].__code__.co_firstlineno


def test_a_fit_that_ran_out_of_time_says_so():
    with pytest.warns(ConvergenceWarning, match=r"time limit of 1e-09 s .* Raise time_limit to"):
        assert NMF(**HASTY).fit(X).status_ is Status.TIME_LIMIT


def test_a_number_of_iterations_that_was_asked_for_ends_as_it_may():
    model = NMF(3, tol=0.0, time_limit=1e-9).fit(X)  # a warning would be an error
    assert model.status_ is Status.TIME_LIMIT


@pytest.mark.parametrize("beta_loss", ["frobenius", "kullback-leibler"])
def test_known_components_without_time_for_W_are_told_of(beta_loss):
    options = {"update_H": False, "time_limit": 1e-9, "beta_loss": beta_loss}
    with pytest.warns(ConvergenceWarning, match="time limit"):
        non_negative_factorization(X, H=X[:3], **options)


def test_time_that_ends_after_the_last_row_is_no_lateness(monkeypatch):
    now, solve = [0.0], Coder._solve

    def slow(*rows: Any, **options: Any) -> None:
        solve(*rows, **options)
        now[0] += 2.0

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Coder, "_solve", slow)
    model = NMF(3, time_limit=1.0, random_state=0).fit(X)
    assert model.status_ is Status.CONVERGED
    model.transform(X)
    assert now == [2.0]
    monkeypatch.setattr(Coder, "_block", lambda self: 10)
    with pytest.warns(ConvergenceWarning, match="rows that 1 s did not reach"):
        model.transform(X)
