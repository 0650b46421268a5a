"""Runs of the core end with their time: nothing long is done before its start or after its end."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse

from factormer import factorize, factorize_many
from factormer.data import Dense
from factormer.kernels.core import core
from factormer.penalties import L1, L2
from factormer.problem.problem import Problem
from factormer.starts import NNDSVD

pytestmark = pytest.mark.skipif(core() is None, reason="there is no core")
NO_TIME = 1e-9
V = np.random.default_rng(0).random((3000, 1000))  # times rank 40, more than is done afterwards


def refused(*_: object) -> None:
    raise AssertionError("V was read")


@pytest.mark.parametrize("options", [{}, {"regularize_W": L1(0.1)}, {"n_init": 3}], ids=str)
def test_an_error_that_was_not_known_in_time_is_infinite(options, monkeypatch):
    monkeypatch.setattr(Problem, "rmse", refused)
    monkeypatch.setattr(Dense, "sq_error", refused)
    found = factorize(V, 40, time_limit=NO_TIME, **options)
    assert (found.status.name, found.n_iter, found.rmse) == ("TIME_LIMIT", 0, math.inf)
    assert np.isfinite(found.W).all()
    assert found.W.any()


@pytest.mark.parametrize("A", [V[:40, :30], scipy.sparse.csr_array(V[:40, :30])], ids=type)
def test_the_error_of_a_small_matrix_is_known_all_the_same(A):
    found = factorize(A, 3, time_limit=NO_TIME)
    dense = V[:40, :30]
    assert found.rmse == pytest.approx(np.sqrt(np.mean((dense - found.W @ found.H.T) ** 2)))


def test_starts_that_there_is_no_time_for_are_not_made(monkeypatch):
    monkeypatch.setattr(NNDSVD, "__call__", refused)
    found = factorize(V, 40, time_limit=NO_TIME, init="nndsvd")
    assert found.status.name == "TIME_LIMIT"


def test_jobs_that_there_is_no_time_for_are_missing():
    found = factorize_many([V] * 3, 40, time_limit=NO_TIME)
    assert not found.done.any()


@pytest.mark.parametrize(
    "options",
    [{"regularize_W": L1(0.1)}, {"regularize_H": [L1(0.01), L2(0.2)]}, {"regularize_W": L2(3.0)}],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_misfit_beside_penalties_takes_no_reading_of_v(options, dtype, monkeypatch):
    A = V[:60, :40].astype(dtype)
    monkeypatch.setattr(Dense, "sq_error", refused)
    found = factorize(A, 5, **options)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((A - found.W @ found.H.T) ** 2)), rel=1e-5)
