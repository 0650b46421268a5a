"""A pytest plugin that runs scikit-learn's own NMF tests on this package's classes.

Loaded with -p before scikit-learn's tests are imported. Tests that use neither NMF nor
non_negative_factorization, but MiniBatchNMF or private functions alone, are left out. What became
of each of the others is written as JSON to the file that FACTORMER_CONFORMANCE names.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import sklearn.decomposition

import factormer

OURS = ("NMF", "non_negative_factorization")
outcomes: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    for name in OURS:
        setattr(sklearn.decomposition, name, getattr(factormer, name))


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    items[:] = [item for item in items if concerns_us(item)]


def concerns_us(item: Any) -> bool:
    if hasattr(item, "callspec") and "Estimator" in item.callspec.params:
        return item.callspec.params["Estimator"] is factormer.NMF
    codes = [item.function.__code__]
    for code in codes:
        codes += [c for c in code.co_consts if hasattr(c, "co_names")]
    return any(name in code.co_names for code in codes for name in OURS)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.rpartition("::")[2]
    if report.when == "call" or report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        outcomes[name] = report.outcome if crash is None else crash.message.strip().splitlines()[0]


def pytest_sessionfinish() -> None:
    Path(os.environ["FACTORMER_CONFORMANCE"]).write_text(json.dumps(outcomes, indent=1))
