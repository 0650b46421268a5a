"""The suites of scikit-learn on our classes: docs/conformance.md lists what differs, and why."""

import re

import pytest

from tests.sklearn_conformance.report import PAGE, estimator_checks, reason, suite


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NMF", "MiniBatchNMF"])
def test_estimator_checks_pass_with_default_parameters(name):
    checks = estimator_checks("factormer", name)
    assert not checks.failed, checks.failed
    said = " ".join(PAGE.read_text("utf-8").split()).partition(f"check_estimator({name}())")[2]
    assert f" {len(checks.passed)} checks pass, none fail," in said.partition("skipped")[0]


@pytest.mark.slow
def test_tests_of_scikit_learn_pass_but_those_that_differ_by_design():
    """A test that fails and is not in the table is a bug; one that passes and is, an old row."""
    told, outcomes = PAGE.read_text("utf-8"), suite()
    differ = {name: why for name, why in outcomes.items() if why != "passed"}
    assert not [name for name in differ if reason(name) is None], differ
    assert set(re.findall(r"^\| `(test_\S+)` \|", told, re.MULTILINE)) == set(differ), differ
    figures = f"{len(outcomes)} tests, {len(outcomes) - len(differ)} pass, {len(differ)} differ"
    assert figures in " ".join(told.split())
