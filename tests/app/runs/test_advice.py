"""Which rank a run recommends: by what there is, in a fixed order, and always with the rule."""

from dataclasses import replace

import numpy as np
import pytest

from factormer.app.runs import RankResult
from factormer.app.runs.advice import advised, bend

OPTIONS = {"loss": "frobenius", "holdout": 0.2}
DRAWN = OPTIONS | {"repeats": 20, "resample": "bootstrap"}
CHOICE = {"rank": 3, "clear": True, "reason": "3 components (98 % sure)."}


def result(rank: int, objective: float = 1.0) -> RankResult:
    return RankResult(
        rank=rank,
        status="CONVERGED",
        message="",
        iterations=1,
        seconds=1.0,
        objective=objective,
        rmse=1.0,
        relative_error=1.0,
        explained=0.0,
        svd_rmse=None,
        shares=[],
    )


def hidden(*errors: list[float]) -> list[RankResult]:
    return [replace(result(k + 2), held_out=folds) for k, folds in enumerate(errors)]


def stable(*values: list[float]) -> list[RankResult]:
    return [replace(result(len(each)), stability=each) for each in values]


def test_the_bend_of_the_error_curve():
    errors = [10.0, 6.0, 2.0, 1.8, 1.6, 1.4]
    assert bend([result(k + 2, e**2) for k, e in enumerate(errors)]) == 2
    assert bend([result(5)]) == 0


def test_without_more_it_is_a_place_to_begin_and_not_advice():
    errors = [10.0, 6.0, 2.0, 1.8]
    results = [result(k + 2, e**2) for k, e in enumerate(errors)]
    found = advised(results, OPTIONS)
    assert found is not None
    assert (found.rank, found.by) == (4, "bend")
    assert "a place to begin looking" in found.text
    assert "--holdout 0.1" in found.text
    counts = advised(results, OPTIONS | {"loss": "kullback-leibler"})
    assert counts is not None
    assert "root of the loss" in counts.text
    assert advised([result(5)], OPTIONS) is None


def test_hidden_entries_decide_for_the_smallest_rank_that_is_as_good():
    clear = advised(hidden([2.0, 2.1], [1.0, 1.1], [1.5, 1.6]), OPTIONS)
    assert clear is not None
    assert (clear.rank, clear.by) == (3, "hidden")
    assert "clearly worse at every smaller one" in clear.text
    close = advised(hidden([2.0, 2.1], [1.0, 1.2], [1.05, 1.1]), OPTIONS)
    assert close is not None
    assert close.rank == 3
    assert close.text == (
        "It is the smallest rank that predicts hidden entries as well as the best one, 4, within "
        "one standard error. Hidden entries do not tell ranks 3 and 4 apart: another seed may "
        "recommend another of them. As 4 is the largest rank that was tried, try larger ones too."
    )
    assert advised(hidden([2.0, 2.1]), OPTIONS) is None


def test_ranks_that_hidden_entries_do_not_tell_apart_are_named():
    rng = np.random.default_rng(1)
    folds = np.array([[9.0], [1.4], [1.4], [1.4], [4.0], [1.4]]) * rng.uniform(0.7, 1.3, (6, 10))
    found = advised(hidden(*folds.tolist()), OPTIONS)
    assert found is not None
    assert "Hidden entries do not tell ranks 3 to 5 and 7 apart" in found.text
    folds[:, 0] = 1000.0  # a fold that no rank predicts
    folds[3, 0] = 1e6
    same = advised(hidden(*folds.tolist()), OPTIONS)
    assert same is not None
    assert same.rank == found.rank


@pytest.mark.parametrize(
    ("values", "rank", "text"),
    [
        (([0.9, 0.9], [0.9, 0.8, 0.9], [0.9, 0.9, 0.9, 0.1]), 3, "largest rank at which runs"),
        (([0.5, 0.5], [0.7, 0.5, 0.9]), 3, "At no rank"),
    ],
)
def test_stability_takes_the_largest_rank_at_which_runs_agree(values, rank, text):
    found = advised(stable(*values), DRAWN)
    assert found is not None
    assert (found.rank, found.by) == (rank, "stability")
    assert text in found.text


def test_stability_says_if_its_choice_lies_at_an_edge():
    top = advised(stable([0.9, 0.9], [0.9, 0.8, 0.9]), DRAWN)
    assert top is not None
    assert top.text.endswith("As 3 is the largest rank that was tried, try larger ones too.")
    low = advised(stable([0.9, 0.9], [0.9, 0.1, 0.9]), DRAWN)
    assert low is not None
    assert low.text.endswith("As 2 is the smallest rank that was tried, try smaller ones too.")


def test_stability_of_other_starts_recommends_nothing():
    for options in (OPTIONS, OPTIONS | {"repeats": 20, "resample": "none"}):
        found = advised(stable([0.9, 0.9], [0.9, 0.8, 0.9]), options)
        assert found is not None
        assert found.by == "bend"
        assert "their stability recommends no rank" in found.text


@pytest.fixture
def three_rules():
    """Hidden entries take rank 4, stability takes 5."""
    errors = ([2.0, 2.1], [1.5, 1.6], [1.0, 1.1], [1.5, 1.6])
    return [replace(a, stability=[0.9] * a.rank) for a in hidden(*errors)]


def test_rules_that_differ_are_reconciled_in_one_statement(three_rules):
    found = advised(three_rules, DRAWN, CHOICE)
    assert found is not None
    assert (found.rank, found.by) == (3, "network")
    assert found.text.startswith("Rules that ask different questions differ here. Which rank do ")
    assert "predicts hidden entries as well as any? 4. Up to which rank do" in found.text
    assert "The first answer decides" in found.text
    assert found.rules[0].text == CHOICE["reason"]
    assert [(rule.by, rule.rank) for rule in found.rules] == [
        ("network", 3),
        ("hidden", 4),
        ("stability", 5),
    ]
    assert "predicted best at rank 4" in found.rules[1].text
    without = advised(three_rules, DRAWN)
    assert without is not None
    assert (without.rank, without.by) == (4, "hidden")
    of_starts = advised(three_rules, OPTIONS)
    assert of_starts is not None
    assert "stability" not in [rule.by for rule in of_starts.rules]


def test_rules_that_agree_say_so_and_argue_no_further(three_rules):
    found = advised(three_rules, DRAWN | {"holdout": 0.0}, CHOICE | {"rank": 5})
    assert found is not None
    assert "it is the largest rank" not in found.text.lower()
    same = advised([*three_rules[:3]], DRAWN, CHOICE | {"rank": 4})
    assert same is not None
    assert same.text == (
        "The network that reads all curves, the error of hidden entries and stability under new "
        "draws agree on rank 4."
    )
    alone = advised([result(7)], OPTIONS, CHOICE)
    assert alone is not None
    assert (alone.rank, alone.text, len(alone.rules)) == (3, CHOICE["reason"], 1)


def test_a_choice_that_is_not_clear_gives_way_to_hidden_entries():
    results = hidden([9.0, 9.1], [1.4, 1.5], [1.4, 1.5], [8.0, 8.1])  # 3 and 4 are alike
    chances = {"2": 0.4, "3": 0.2, "4": 0.3, "5": 0.1}
    unclear = CHOICE | {"rank": 2, "clear": False, "probabilities": chances}
    found = advised(results, OPTIONS, unclear)
    assert found is not None
    assert (found.rank, found.by) == (4, "hidden")
    assert "The first answer is not clear" in found.text
    likely = advised(results, OPTIONS, unclear | {"rank": 4})
    assert likely is not None
    assert (likely.rank, likely.by) == (4, "network")
