"""The suites of scikit-learn on our classes: docs/conformance.md lists what differs, and why."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
SUITE = "sklearn.decomposition.tests.test_nmf"

# In processes without the shape checks: they forbid what one of the checks does, which is to make
# estimators of nonsense, and make the others ten times slower.
CHECK_AND_REPORT = """
import json, warnings
from sklearn.utils.estimator_checks import check_estimator
from factormer import NMF
with warnings.catch_warnings():
    warnings.simplefilter("error")
    done = check_estimator(NMF(), on_skip=None, on_fail=None)
print(json.dumps([[d["check_name"], d["status"], repr(d["exception"])] for d in done]))
"""


def environment(**more: str) -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **more, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.slow
def test_estimator_checks_pass_with_default_parameters():
    command = [sys.executable, "-c", CHECK_AND_REPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)
    failed = [f"{name}: {error}" for name, status, error in checks if status == "failed"]
    assert not failed, "\n".join(failed)
    passed = sum(status == "passed" for _, status, _ in checks)
    assert f"{passed} checks pass, none fails" in PAGE.read_text("utf-8").replace("\n", " ")


@pytest.mark.slow
def test_tests_of_scikit_learn_pass_but_those_that_differ_by_design(tmp_path):
    """A test that fails and is not in the table is a bug; one that passes and is, an old row."""
    told, found = PAGE.read_text("utf-8"), tmp_path / "outcomes.json"
    options = ["-q", "-p", "no:cacheprovider", "--pyargs", SUITE]
    command = [sys.executable, "-m", "pytest", "-p", "tests.sklearn_conformance.plugin", *options]
    env = environment(FACTORMER_CONFORMANCE=str(found))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path
    )
    assert found.exists(), done.stdout + done.stderr
    outcomes = json.loads(found.read_text())
    differ = {name: why for name, why in outcomes.items() if why != "passed"}
    assert set(re.findall(r"^\| `(test_\S+)` \|", told, re.MULTILINE)) == set(differ), differ
    figures = f"{len(outcomes)} tests, {len(outcomes) - len(differ)} pass, {len(differ)} differ"
    assert figures in " ".join(told.split())
