"""The fuzzer itself: what it draws, that it survives its workers; and what it once found."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.build import case_of
from tests.fuzz.claims import Broken, errors_are_sentences
from tests.fuzz.exact import objective
from tests.fuzz.judge import judge
from tests.fuzz.misbehave import misbehave
from tests.fuzz.pool import Worker
from tests.fuzz.specs import ENTRIES, drawn
from tests.fuzz.state import State, cell, keep

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
PLAIN = {"kind": "random", "m": 6, "n": 5, "true_rank": 2, "zeros": 0.0, "exponent": 0,
         "dtype": "float64", "layout": "C"}  # fmt: skip


def spec_of(entry="factorize", **more):
    common = {"entry": entry, "seed": 1, "data": PLAIN, "rank": 2, "tol": 1e-4, "max_iter": 20}
    return common | more


@pytest.mark.filterwarnings("ignore:The loss is beyond float64")  # as reading it says
@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_what_once_failed_does_not_fail(file):
    outcome = judge(json.loads(file.read_text())["spec"])
    assert outcome["verdict"] != "failed", outcome


@pytest.mark.parametrize("entry", sorted({*ENTRIES} - {"stack", "command_line"}))
def test_a_plain_input_is_answered_at_every_entry(entry):
    outcome = judge(spec_of(entry))
    assert outcome["verdict"] == "answered", outcome


def test_a_file_is_answered_by_the_command_line():
    assert judge(spec_of("command_line", file="npy"))["verdict"] == "answered"


def test_a_batch_is_drawn_alike_each_time_and_fits_in_json():
    batch = drawn(5, 30)
    assert len(batch) == 30
    assert json.dumps(batch) == json.dumps(drawn(5, 30))  # as text, since NaN is not NaN
    assert json.dumps(batch) != json.dumps(drawn(6, 30))


def test_every_drawn_input_can_be_built():
    for spec in drawn(7, 60):
        case = case_of(spec)
        assert case.A.shape == (spec["data"]["m"], spec["data"]["n"])


def test_a_worker_that_crashes_or_hangs_is_replaced():
    worker = Worker(misbehave, cap=1.0, warms=False)  # which takes seconds, four times
    try:
        crashed = worker.ask("crash")
        assert (crashed["claim"], crashed["what"][:7]) == ("no_input_crashes", "SIGSEGV")
        assert worker.ask("well") == "well"
        assert worker.ask("hang")["claim"] == "every_input_ends"
        assert worker.ask("well") == "well"
    finally:
        worker.stop()


def test_a_state_goes_on_from_where_it_ended(tmp_path):
    state, spec = State(tmp_path), spec_of(solver="hals")
    state.add(spec, {"verdict": "answered"})
    state.add(spec, {"verdict": "failed", "claim": "it_holds", "what": "3 of 4"})
    state.add(spec, {"verdict": "failed", "claim": "it_holds", "what": "5 of 6"})
    state.next_batch = 9
    state.save()
    again = State(tmp_path)
    assert (again.next_batch, again.total) == (9, 3)
    assert again.cells[" × ".join(cell(spec))] == 3
    assert [kind["times"] for kind in again.failures.values()] == [2]  # numbers make no other kind
    assert "it_holds" in again.summary()


def test_a_failure_is_kept_as_a_file(tmp_path):
    file = keep(spec_of(), {"claim": "it_holds", "what": "it did not"}, tmp_path)
    assert json.loads(file.read_text())["spec"] == spec_of()


def test_an_error_that_nobody_wrote_is_no_sentence():
    with pytest.raises(ValueError, match="mismatch") as found:
        np.matmul(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(Broken, match="errors_are_sentences"):
        errors_are_sentences(found.value)


@pytest.mark.parametrize("beta", [2.0, 1.0, 0.0, 0.5, 3.0])
def test_objectives_scale_as_divergences_do(beta):
    rng = np.random.default_rng(0)
    A, W, H = rng.random((4, 5)), rng.random((4, 2)), rng.random((5, 2))
    one = objective(A, None, W, H, beta).total
    far = objective(1e100 * A, None, 1e50 * W, 1e50 * H, beta).total
    assert float(far / np.longdouble(10) ** (100 * beta)) == pytest.approx(float(one))
    assert float(one) > 0
