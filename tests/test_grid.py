"""factorize_many with several matrices and several ranks: pairs, or every rank of every matrix."""

import warnings
from typing import Any

import numpy as np
import pytest

from factormer import factorize, factorize_many

RNG = np.random.default_rng(0)
PROBLEMS = [RNG.random((m, 8)) for m in (10, 12, 9)]
SHORT: Any = {"max_iter": 5, "tol": 0}


def test_pairs_that_nobody_asked_for_are_warned_of():
    with pytest.warns(FutureWarning, match="got 3 matrices and as many ranks, and pairs") as seen:
        results = factorize_many(PROBLEMS, range(2, 5), **SHORT)
    assert seen[0].filename == __file__
    assert [result.W.shape for result in results] == [(10, 2), (12, 3), (9, 4)]


@pytest.mark.parametrize(
    ("problems", "ranks", "grid"),
    [
        (PROBLEMS, [2, 3, 4], False),
        (PROBLEMS, [2, 3], True),
        (PROBLEMS, 2, None),
        (PROBLEMS, [2], True),
        (PROBLEMS[0], [2, 3], None),
        (PROBLEMS[:1], [2], None),
    ],
)
def test_what_is_clear_warns_of_nothing(problems, ranks, grid):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factorize_many(problems, ranks, grid=grid, **SHORT)


@pytest.mark.parametrize("kind", ["list", "stack"])
@pytest.mark.parametrize("n_init", [1, 2])
def test_a_grid_has_every_rank_of_every_matrix(kind, n_init):
    problems = PROBLEMS if kind == "list" else np.stack([V[:9] for V in PROBLEMS])
    results = factorize_many(problems, [2, 4], grid=True, n_init=n_init, random_state=7, **SHORT)
    columns = results.columns()
    expected = [(p, rank, run) for p in range(3) for rank in (2, 4) for run in range(n_init)]
    found = zip(columns["problem"], columns["rank"], columns["run"], strict=True)
    assert [tuple(map(int, row)) for row in found] == expected
    init = "random" if n_init > 1 else "auto"
    for k, (p, rank, _) in enumerate(expected):
        alone = factorize(problems[p], rank, random_state=7 + k, init=init, **SHORT)
        np.testing.assert_allclose(results[k].rmse, alone.rmse, rtol=1e-4)


def test_a_grid_takes_a_seed_for_each_job_and_a_folder(tmp_path):
    options: Any = {"grid": True, "random_state": [5, 6, 5, 6, 5, 6], **SHORT}
    results = factorize_many(PROBLEMS, [2, 3], folder=tmp_path / "sweep", **options)
    again = factorize_many(PROBLEMS, [2, 3], folder=tmp_path / "sweep", **options)
    np.testing.assert_array_equal(results.rmse, again.rmse)
    with pytest.raises(ValueError, match="has 2 numbers for 6 jobs"):
        factorize_many(PROBLEMS, [2, 3], grid=True, random_state=[1, 2])


def test_other_lengths_are_refused():
    with pytest.raises(ValueError, match="or grid=True for every rank of every problem"):
        factorize_many(PROBLEMS, [2, 3])
