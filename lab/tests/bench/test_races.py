"""Benchmarks by name, and the judging of races, without a clock."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from factormer_lab.bench import races
from factormer_lab.bench.__main__ import BENCHMARKS
from factormer_lab.bench.cases import find, known
from factormer_lab.bench.contestants import contestant
from factormer_lab.bench.errors import ERRORS, EXACT, divergence, rmse
from factormer_lab.bench.races import Point

ROOT = Path(__file__).parents[3]


def test_each_name_is_of_a_module_that_there_is():
    for one in BENCHMARKS.values():
        assert importlib.util.find_spec(f"factormer_lab.bench.{one.module}")


def test_documents_and_code_name_benchmarks_that_there_are():
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    text = "".join(f.read_text() for f in files if "log" not in f.parts and f.stem != "log")
    named = set(re.findall(r"make bench NAME=([a-z-]+)", text))
    assert named
    assert named <= BENCHMARKS.keys()


@pytest.mark.parametrize("race", races.RACES.values(), ids=races.RACES)
def test_each_race_has_cases_and_contestants(race):
    assert race.loss in ERRORS
    for cases, methods in race.heats:
        assert find(cases, absent=False)
        for method in methods:
            assert contestant(method).name == method


def test_options_of_a_contestant_are_changed_by_its_name():
    one = contestant("factormer solver=hals tol=0.1 accelerator=None")
    assert one.options == {"tol": 0.1, "random_state": 0, "solver": "hals", "accelerator": None}
    with pytest.raises(SystemExit, match="no method 'nobody'"):
        contestant("nobody solver=hals")


def test_a_contestant_is_judged_by_the_least_seconds_to_the_best_error():
    curves = {
        "quick": [Point(1, 0.1, 2.0), Point(2, 0.2, 1.009)],
        "exact": [Point(1, 0.5, 1.05), Point(2, 0.9, 1.0)],
    }
    found = races.judge(curves, "frobenius")
    assert found["best"] == 1.0
    to = {name: one["to"] for name, one in found["contestants"].items()}
    assert to["quick"] == {"1 %": {"seconds": 0.2, "iterations": 2}, "0.1 %": None}
    assert to["exact"]["0.1 %"] == {"seconds": 0.9, "iterations": 2}
    means = races.summary([found], "exact", budget=4.0)
    assert means["quick"]["1 %"] == {"ratio": pytest.approx(0.2 / 0.9), "reached": 1}
    assert means["quick"]["0.1 %"] == {"ratio": pytest.approx(4.0 / 0.9), "reached": 0}


def test_errors_below_the_floor_count_as_exact():
    found = races.judge({"a": [Point(1, 0.1, 1e-9)], "b": [Point(1, 0.1, 5e-4)]}, "frobenius")
    assert found["best"] == EXACT
    assert all(one["to"]["0.1 %"] for one in found["contestants"].values())


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_errors_are_those_of_their_definitions(kind):
    rng = np.random.default_rng(0)
    V = rng.poisson(1.0, (30, 20)).astype(float)
    W, H = rng.random((30, 3)), rng.random((20, 3))
    Y = W @ H.T
    assert rmse(kind(V), W, H) == pytest.approx(np.sqrt(np.mean((V - Y) ** 2)))
    log = np.where(V > 0, V * np.log(np.maximum(V, 1) / Y), 0)
    assert divergence(kind(V), W, H) == pytest.approx(np.mean(log - V + Y))
    assert rmse(kind(V), -W, H) == divergence(kind(V), W, H * np.nan) == np.inf


def test_cases_are_found_by_name_and_rank():
    assert [(c.name, c.rank) for c in find(["digits:7", "noisy"])] == [("digits", 7), ("noisy", 20)]
    assert {"race-small", "pictures-a", "exact-0"} <= known().keys()
    assert not any(case.name.startswith("race-") for case in find())
    with pytest.raises(SystemExit, match="no case 'unheard'"):
        find(["unheard:3"])
    assert find(["unheard:3"], absent=False) == []
