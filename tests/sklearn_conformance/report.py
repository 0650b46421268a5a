"""Run scikit-learn's suites on our classes and write what differs, and why, to a page.

python -m tests.sklearn_conformance.report  (or: make conformance)
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import sklearn

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
SUITE = "sklearn.decomposition.tests.test_nmf"

# In processes without the shape checks: they forbid what one of the checks does, which is to make
# estimators of nonsense, and make the others ten times slower.
CHECK_AND_REPORT = """
import json, warnings
from sklearn.utils.estimator_checks import check_estimator
from {module} import {name}
with warnings.catch_warnings():
    warnings.simplefilter("{warnings}")
    done = check_estimator({name}(), on_skip=None, on_fail=None)
print(json.dumps([[d["check_name"], d["status"], repr(d["exception"])] for d in done]))
"""

# Why a test of scikit-learn's may fail here, by a pattern of its name; no other may.
BY_DESIGN = {
    r"test_parameter_checking": 'It expects init="nndsvd" to be refused where n_components > '
    "min(n_samples, n_features); here the components beyond are drawn at random. Its other "
    "refusals are here too.",
    r"test_nmf_custom_init_dtype_error\[NMF\]": "It expects a start in another precision than X to "
    "be refused; here it is converted.",
    r"test_nmf_n_components_auto\[NMF\]": "It reads the private attribute `_n_components`; "
    "`n_components_` is public and right.",
    r"test_nmf_minibatchnmf_equivalence\[.*\]": "It compares W with that of `MiniBatchNMF` number "
    "by number; here the default start is another, and components have their own order and scale.",
}


class Checks(NamedTuple):
    """What `check_estimator` found: names of checks that passed, were skipped, and failed."""

    passed: list[str]
    skipped: list[str]
    failed: dict[str, str]


def environment(**more: str) -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **more, "PYTHONPATH": os.pathsep.join(paths)}


def estimator_checks(module: str, name: str = "NMF") -> Checks:
    """Check an estimator with default parameters; warnings are errors for ours alone."""
    kind = "error" if module == "factormer" else "ignore"
    code = CHECK_AND_REPORT.format(module=module, name=name, warnings=kind)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    rows = json.loads(done.stdout)
    named = {kind: [n for n, status, _ in rows if status == kind] for kind in ("passed", "skipped")}
    failed = {n: error for n, status, error in rows if status == "failed"}
    return Checks(named["passed"], named["skipped"], failed)


def suite() -> dict[str, str]:
    """Return what became of each test of scikit-learn's: "passed", or how it failed."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "outcomes.json"
        options = ["-q", "-p", "no:cacheprovider", "--pyargs", SUITE]
        plugin = ["-p", "tests.sklearn_conformance.plugin"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plugin, *options],
            capture_output=True, text=True, check=False, cwd=folder,
            env=environment(FACTORMER_CONFORMANCE=str(found)),
        )  # fmt: skip
        if not found.exists():
            raise RuntimeError(done.stdout + done.stderr)
        return json.loads(found.read_text())


def reason(name: str) -> str | None:
    """Why a test differs by design; None where it should not."""
    return next((why for pattern, why in BY_DESIGN.items() if re.fullmatch(pattern, name)), None)


def page(ours: Checks, theirs: Checks, batches: Checks, outcomes: dict[str, str]) -> str:
    """The text of docs/conformance.md."""
    differ = [name for name, outcome in outcomes.items() if outcome != "passed"]
    rows = "\n".join(f"| `{name}` | {reason(name)} |" for name in differ)
    return f"""# How far NMF is scikit-learn's NMF

`factormer.NMF` takes every parameter of `sklearn.decomposition.NMF` and has every attribute and method of it. Two of scikit-learn's own suites say how
far that goes. `make conformance` runs both and writes this page; a test that fails and has no reason in
`tests/sklearn_conformance/report.py` is a bug, and `make test-all` fails for it.

Version: scikit-learn {sklearn.__version__}.

## Estimator checks

`check_estimator(NMF())`, default parameters, warnings as errors, no expected failures: {len(ours.passed)} checks pass, {len(ours.failed) or "none"} fail,
{len(ours.skipped)} skipped by scikit-learn itself (`{"`, `".join(ours.skipped)}`, which wants an environment variable).
scikit-learn's own `NMF()`, with warnings ignored: {len(theirs.passed)} pass, {len(theirs.failed)} fail (`{"`, `".join(theirs.failed)}`).
`check_estimator(MiniBatchNMF())`, ours, in the same way as `NMF()`: {len(batches.passed)} checks pass, {len(batches.failed) or "none"} fail, {len(batches.skipped)} skipped.

## Tests of NMF

All tests of `sklearn/decomposition/tests/test_nmf.py` that use `NMF` or `non_negative_factorization`, with ours in their place: {len(outcomes)} tests,
{len(outcomes) - len(differ)} pass, {len(differ)} differ. Tests of `MiniBatchNMF` and of private functions alone are left out: they are not about the estimator.

| test | why it differs |
| --- | --- |
{rows}
"""  # noqa: E501


def unexplained(ours: Checks, outcomes: dict[str, str]) -> list[str]:
    """Return what fails without a reason."""
    tests = [f"{n}: {o}" for n, o in outcomes.items() if o != "passed" and reason(n) is None]
    return [f"{name}: {error}" for name, error in ours.failed.items()] + tests


def main() -> None:
    """Write the page, unless something fails that should not."""
    ours, batches = (estimator_checks("factormer", name) for name in ("NMF", "MiniBatchNMF"))
    outcomes = suite()
    if wrong := [*unexplained(ours, outcomes), *batches.failed]:
        sys.exit("\n".join(wrong))
    theirs = estimator_checks("sklearn.decomposition")
    PAGE.write_text(page(ours, theirs, batches, outcomes), "utf-8")


if __name__ == "__main__":
    main()
