"""The judge measures errors by itself and sees each broken promise."""

from dataclasses import replace

import numpy as np
import pytest

from tests.characterise.__main__ import differences
from tests.characterise.cases import CASES, Case
from tests.characterise.data import Data, factors, planted
from tests.characterise.judge import Answer, judged

W, H = (F[:, [1, 0]] for F in factors(8, 6, 2))  # any two factors
V = planted(8, 6, 2)
DATA = Data(V, (V,))
CASE = Case("some", "noisy", 2, promises=("nonnegative",))


def test_the_error_is_that_of_the_factors():
    verdict = judged(CASE, DATA, Answer(W, H))
    assert verdict.error == pytest.approx(np.linalg.norm(V - W @ H.T) / np.linalg.norm(V))
    assert not verdict.broken


def test_entries_that_are_not_known_do_not_count():
    known = np.ones_like(V)
    known[0] = 0
    verdict = judged(CASE, Data(V, (V,), known), Answer(W, H))
    expected = np.linalg.norm((V - W @ H.T)[1:]) / np.linalg.norm(V[1:])
    assert verdict.error == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "broken"),
    [
        (Answer(-W, -H), "nonnegative"),
        (Answer(np.where(W > 0, W, np.nan), H), "finite"),
        (Answer(W[1:], H), "shape"),
        (Answer(W, H, rmse=1e6), "rmse"),
        (Answer(W, H, loss=1e6), "loss"),
    ],
)
def test_a_broken_promise_is_named(answer, broken):
    assert judged(CASE, DATA, answer).broken == (broken,)


@pytest.mark.parametrize(
    ("promise", "answer"),
    [
        ("by share", Answer(W * [1e-3, 1], H)),
        ("balanced", Answer(W * [2, 1], H)),
        ("H sums to one", Answer(W, H)),
        ("rows of W sum to one", Answer(W, H)),
        ("H at most one", Answer(W, 1 + H)),
        ("W is H", Answer(W[:6], H, rows=slice(6))),
    ],
)
def test_a_promise_of_a_case_is_judged(promise, answer):
    case = replace(CASE, promises=(promise,))
    assert judged(case, DATA, answer).broken == (promise,)


def test_a_record_fails_by_error_status_fact_and_promise_alone():
    name = CASES[0].name
    then = {"error": [0.1], "status": ["CONVERGED"], "facts": [{"rank": 2}], "data": 1.0}
    same = {**then, "broken": [], "iterations": 7, "seconds": 9.0}
    frozen = {name: {**then, "iterations": 3, "seconds": 1.0}}
    assert not differences(name, same, frozen, {})
    assert not differences(name, same | {"error": [0.1 * 1.0009]}, frozen, {})
    for wrong in (
        {"error": [0.1 * 1.0011]},
        {"error": [None]},
        {"status": ["MAX_ITER"]},
        {"facts": [{"rank": 3}]},
        {"broken": ["rmse"]},
        {"data": 2.0},
    ):
        assert differences(name, same | wrong, frozen, {}), wrong
    assert not differences(name, same | {"broken": ["rmse"]}, frozen, {name: ["rmse"]})
