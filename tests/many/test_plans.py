"""The plan of a result says what ran, whichever way it was carried out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from factormer import factorize, factorize_many
from factormer.many.chip import Bucket
from factormer.many.jobs import jobs_of
from factormer.run.plan import Explanation

RNG = np.random.default_rng(0)
LARGE = RNG.random((1000, 500))
ONE: dict[str, Any] = {"max_iter": 4}


def test_replicates_say_what_a_single_call_from_their_start_says():
    plan = factorize_many(LARGE, [10], n_init=2, **ONE)[0].plan
    assert plan == factorize(LARGE, 10, init="random", **ONE).plan
    assert plan.start == "random: asked for"


@pytest.mark.parametrize(
    ("V", "said"),
    [
        (LARGE[:100, :80], "her on V, in float32 until its rounding errors matter"),
        (LARGE[:100, :80].astype(np.float32), "her on V"),
        (scipy.sparse.csr_array(LARGE * (LARGE > 0.9)), "her on V, in float32 until"),
    ],
    ids=["double", "single", "sparse"],
)
def test_stages_are_those_of_the_precision(V, said):
    [stage] = factorize_many(V, [3], n_init=2, **ONE)[0].plan.stages
    assert stage.startswith(said)


def test_small_problems_and_those_that_are_left_to_single_calls_say_what_those_do():
    small = [LARGE[:30, :20], LARGE[30:60, :20]]
    found = factorize_many(small, 3, loss="frobenius", **ONE)
    assert found[0].plan == factorize(small[0], 3, **ONE).plan
    found = factorize_many(small, 3, loss="kullback-leibler", **ONE)
    assert found[0].plan == factorize(small[0], 3, loss="kullback-leibler", **ONE).plan


@pytest.mark.parametrize(
    ("options", "start", "stage"),
    [
        ({}, "random: no decomposition on the chip", "her on V, in float32, on the chip"),
        ({"loss": "kullback-leibler"}, "random: 20 iterations on √V first", "newton on V, in"),
    ],
    ids=["squares", "counts"],
)
def test_the_chip_says_what_it_does(options, start, stage):
    jobs = jobs_of(
        [LARGE[:30, :20]], 3, n_init=1, resample=None, random_state=0, missing=None, device=None,
        options={**options, **ONE},
    )  # fmt: skip
    plan = Bucket._plan(SimpleNamespace(jobs=jobs), 0)  # pyright: ignore[reportArgumentType]
    assert isinstance(plan, Explanation)
    assert plan.start == start
    assert plan.stages[0].startswith(stage)
    assert "until iteration 4" in plan.stages[0]
