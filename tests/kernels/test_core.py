"""Whether there is a compiled core, and what is said where there is none."""

import re
import sys
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from factormer.kernels import core

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """Every test asks anew."""
    for name in ("FACTORMER_NO_CORE", "FACTORMER_CORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "factormer._core", raising=False)
    core.core.cache_clear()
    yield
    core.core.cache_clear()


def test_the_environment_can_forbid_the_core(monkeypatch):
    monkeypatch.setenv("FACTORMER_NO_CORE", "1")
    assert core.core() is None
    assert core.isa() is None


def test_a_missing_core_is_told_once(monkeypatch, tmp_path):
    monkeypatch.setenv("FACTORMER_CORE", str(tmp_path))
    with pytest.warns(RuntimeWarning, match=r"has no compiled core.*pip install"):
        assert core.core() is None
    assert core.core() is None


def test_a_broken_core_is_told_with_its_reason(monkeypatch, tmp_path):
    (tmp_path / f"_core{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    monkeypatch.setenv("FACTORMER_CORE", str(tmp_path))
    with pytest.warns(RuntimeWarning, match=r"cannot be loaded.*_core.*pip install"):
        assert core.core() is None


def test_the_core_is_the_packages(monkeypatch):
    monkeypatch.setenv("FACTORMER_NO_CORE", "0")
    if not list((ROOT / "src" / "factormer").glob("_core.*")):
        pytest.skip("the core was not compiled")
    module = core.core()
    assert module is not None
    assert module is core.core() is sys.modules["factormer._core"]
    assert core.isa() in module.isas()


def test_headers_are_those_of_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    overrides = project["tool"]["scikit-build"]["overrides"]
    shipped = next(one for one in overrides if one["if"] == {"state": "wheel"})
    paths = shipped["wheel"]["force-include"]
    headers = core.headers()
    assert paths == {f"core/{name}": f"factormer/core_headers/{name}" for name in headers}
    for text in headers.values():
        assert set(re.findall(r'#include "(\S+)"', text)) <= set(headers)
