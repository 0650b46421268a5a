"""Who looks on changes nothing: the factors are the same, to the last bit."""

from typing import Any

import numpy as np
import pytest

from factormer import NMF
from factormer.functions import factorize
from factormer.kernels.core import core

draw = np.random.default_rng(0)
V = draw.random((30, 4)) @ draw.random((4, 25)) + 0.1 * draw.random((30, 25))
ROUTES: dict[str, dict[str, Any]] = {
    "tolerance": {},
    "all iterations": {"tol": 0.0, "max_iter": 45},
    "looking ahead": {"solver": "ahead", "max_iter": 15},
    "several starts": {"init": "rotated", "max_iter": 15},
    "another loss": {"loss": "kullback-leibler", "max_iter": 25},
}


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES.keys())
def test_callback_and_watch_change_no_bit(route):
    rows, looks = [], []
    alone = factorize(V, 4, **route)
    watched = factorize(
        V, 4, callback=rows.append, watch=lambda x, trace: bool(looks.append(len(trace))), **route
    )
    np.testing.assert_array_equal(watched.W, alone.W)
    np.testing.assert_array_equal(watched.H, alone.H)
    assert watched.trace.rmse.tolist() == alone.trace.rmse.tolist()
    assert [row.iteration for row in rows] == alone.trace.iteration.tolist()
    assert looks == sorted(set(looks))
    assert looks[0] <= 6  # after a few iterations at most


@pytest.mark.skipif(core() is None, reason="without the core each iteration is made by itself")
def test_iterations_are_made_at_once_whoever_watches():
    looks: list[int] = []
    factorize(
        V, 4, tol=1e-12, max_iter=30, watch=lambda x, trace: bool(looks.append(len(trace) - 1))
    )
    assert looks == [5, 10, 15, 20, 25, 30]


def test_a_bar_changes_no_bit(capsys):
    silent, shown = (
        NMF(4, random_state=0, max_iter=30, tol=0.0, verbose=verbose).fit(V) for verbose in (0, 1)
    )
    np.testing.assert_array_equal(silent.components_, shown.components_)
    assert "30/30" in capsys.readouterr().out
