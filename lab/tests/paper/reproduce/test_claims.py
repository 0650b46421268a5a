import math

import pytest

from factormer_lab.paper.reproduce.claims import (
    Verdict,
    accel_claim,
    init_claim,
    lowest,
    real_claim,
)
from lab.tests.paper.reproduce.cases import real_numbers, synthetic_numbers


@pytest.mark.parametrize(
    ("verdict", "met"),
    [
        (Verdict(1.0, 2.0), True),
        (Verdict(2.0, 2.0), True),
        (Verdict(2.0, 2.0, strict=True), False),
        (Verdict(3.0, 2.0), False),
        (Verdict(math.inf, math.inf), False),
        (Verdict(math.nan, 2.0), False),
    ],
)
def test_verdicts_follow_the_numbers(verdict: Verdict, met: bool):
    assert verdict.is_met == met
    assert str(verdict) == ("met" if met else "**not met**")


def test_a_claim_met_by_doing_nothing_is_not_met():
    idle = Verdict(1.0, 1.0, is_idle=True)
    assert not idle.is_met
    assert str(idle) == "**not met** (no proposal kept)"


@pytest.mark.parametrize(
    ("level", "met", "worth"),
    [
        (1 / 21, (True, True), (20, 41)),  # just as good as AO-ADMM at 20
        (1 / 15, (False, True), (14, 29)),
        (0.5, (False, False), (1, 3)),
        (1e-9, (True, True), (None, None)),
    ],
)
def test_initialization_is_judged_at_iteration_20(level, met, worth):
    claim = init_claim(synthetic_numbers(level=level), "init-r10")
    assert tuple(v.is_met for v in claim.verdicts) == met
    assert (claim.worth_alone, claim.worth_one_more) == worth
    assert claim.nndsvd == 1
    assert claim.matched == pytest.approx(1 / 21)


@pytest.mark.parametrize(
    ("quartile", "iteration", "met"),
    [
        ("median", 0, (True, True)),  # the start is the same
        ("median", 1, (False, True)),
        ("median", 50, (False, True)),
        ("median", 51, (True, True)),
        ("q3", 4, (True, True)),
        ("q3", 5, (True, False)),
        ("q3", 20, (True, False)),
        ("q3", 21, (True, True)),
    ],
)
def test_acceleration_is_judged_by_its_worst_iteration(quartile, iteration, met):
    numbers = synthetic_numbers(ratio=0.9)
    numbers["contestants"]["accel-r10"]["ratio"][quartile][iteration] = 1.0
    claim = accel_claim(numbers, "accel-r10")
    assert tuple(v.is_met for v in claim.verdicts) == met


def test_a_ratio_that_is_not_finite_is_not_met():
    numbers = synthetic_numbers(ratio=0.9)
    numbers["contestants"]["accel-r10"]["ratio"]["median"][3] = None
    assert not accel_claim(numbers, "accel-r10").verdicts[0].is_met


def test_real_data_is_judged_at_the_last_iteration():
    numbers = real_numbers(ao_admm=0.6, ao_admm_trace=0.4, init_r10=0.6, accel_r10=0.7)
    assert real_claim(numbers, "init-r10").is_met
    assert not real_claim(numbers, "accel-r10").is_met
    assert not real_claim(numbers, "init-r10", "ao-admm-trace").is_met
    assert not real_claim(real_numbers(init_r10=None), "init-r10").is_met
    assert lowest(numbers["contestants"]["init-r10"]) == (0.6, 100)
