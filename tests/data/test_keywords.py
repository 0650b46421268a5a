"""Keywords that many functions have are refused in a sentence where they are wrong."""

import math

import numpy as np
import pytest

from factormer import NMF, factorize
from factormer.data.intake import as_matrix
from factormer.data.keywords import as_rank, check_callable, check_limits, check_room
from factormer.functions import starting_point

V = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 6.0]])


@pytest.mark.parametrize("rank", [1, 10, np.int64(3), np.uint8(3)])
def test_rank_becomes_a_plain_number(rank):
    assert as_rank(rank) == rank
    assert type(as_rank(rank)) is int


@pytest.mark.parametrize(
    "rank", [0, -1, 2.0, 2.5, True, False, "10", None, np.float64(3), math.nan, 2**63, 10**20]
)
def test_rank_that_is_no_positive_whole_number_is_refused_with_a_sentence(rank):
    with pytest.raises(ValueError, match=r"rank is .*; it must be a whole number of at least 1"):
        as_rank(rank)


@pytest.mark.parametrize("rank", [10**9, 2**62, 10**20])
def test_rank_that_no_memory_holds_is_refused_before_anything_is_made(rank):
    for ask in (factorize, starting_point, lambda V, rank: NMF(rank).fit(V)):
        with pytest.raises(ValueError, match=r"(rank|n_components) is .*(choose a lower|least 1)"):
            ask(V, rank)
    if rank < 2**63:
        with pytest.raises(
            ValueError, match=r"V of 2×3 .* take .* bytes of memory, of .* available"
        ):
            check_room(as_matrix(V), rank)
    check_room(as_matrix(V), 1000)


@pytest.mark.parametrize("max_iter", [-1, 2.5, "10", True, None, math.nan])
def test_wrong_iteration_limit_is_refused_with_a_sentence(max_iter):
    with pytest.raises(
        ValueError, match=r"max_iter is .*; it must be a whole number of at least 0"
    ):
        check_limits(max_iter, 1e-4, None)


@pytest.mark.parametrize("tol", [-1e-4, math.nan, math.inf, 10**400, "1e-4", None])
def test_wrong_tolerance_is_refused_with_a_sentence(tol):
    with pytest.raises(ValueError, match=r"tol is .*; it must be at least 0 \(0: run all of max"):
        check_limits(10, tol, None)


@pytest.mark.parametrize("time_limit", [0, 0.0, -1.0, math.nan, -math.inf, 10**400, "1 min"])
def test_wrong_time_limit_is_refused_with_a_sentence(time_limit):
    with pytest.raises(ValueError, match=r"time_limit is .*; it must be a positive number of sec"):
        check_limits(10, 1e-4, time_limit)


@pytest.mark.parametrize(
    "limits",
    [(0, 0, None), (np.int64(5), np.float32(0.1), 1), (1, 0.0, 0.5), (10**30, 0, math.inf)],
)
def test_limits_that_mean_something_pass(limits):
    check_limits(*limits)


@pytest.mark.parametrize("value", [None, print, lambda row: None])
def test_functions_and_none_can_be_called_back(value):
    check_callable("callback", value)


def test_what_cannot_be_called_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="callback is 3; it must be a function to call, or None"):
        check_callable("callback", 3)
