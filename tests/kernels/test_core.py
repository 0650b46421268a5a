"""Whether there is a compiled core, and what is said where there is none."""

import os
import re
import subprocess
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


def printed(code: str, **environment: str) -> list[str]:
    """Return the lines that a new interpreter prints."""
    names = ("FACTORMER_NUM_THREADS", "OMP_NUM_THREADS")
    variables = {k: v for k, v in os.environ.items() if k not in names} | environment
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return done.stdout.split()


WIDTH = "from factormer.kernels.core import width\nprint(width())\n"
needs_core = pytest.mark.skipif(
    not list((ROOT / "src" / "factormer").glob("_core.*")), reason="the core was not compiled"
)


@needs_core
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FACTORMER_NUM_THREADS": "3", "OMP_NUM_THREADS": "1"}, "3"),
        ({"OMP_NUM_THREADS": "1"}, "1"),
        ({"FACTORMER_NUM_THREADS": "x", "OMP_NUM_THREADS": "1"}, "1"),
    ],
)
def test_the_environment_says_how_many_threads_calls_use(environment, expected):
    assert printed(WIDTH, **environment) == [expected]


@needs_core
def test_torch_and_who_shares_work_out_lower_the_number_of_threads():
    code = f"""
import torch
torch.set_num_threads(3)
{WIDTH}
from threading import Thread
from factormer.clients.threads import using
from factormer.kernels.threads import narrow
with using(1):
    print(width())
def share():
    narrow(2)
    print(width())
thread = Thread(target=share); thread.start(); thread.join()
"""
    assert printed(code, FACTORMER_NUM_THREADS="4") == ["4", "1", "2"]


@needs_core
def test_limits_of_threadpoolctl_hold_from_the_first_call_on():
    code = """
import numpy as np, os
from threadpoolctl import threadpool_info, threadpool_limits
from factormer import factorize
from factormer.kernels.core import width
threads = lambda: len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0
V = np.random.default_rng(0).random((500, 400))
before = threads()
with threadpool_limits(1):
    factorize(V, 5, max_iter=3)
    print(width(), threads() - before)
print(width())
with threadpool_limits({"factormer": 2}):
    print(width())
print([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "factormer"])
"""
    found = printed(code, FACTORMER_NUM_THREADS="3", OMP_NUM_THREADS="3")
    assert found == ["1", "0", "3", "2", "[3]"]


@needs_core
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed there")
@pytest.mark.parametrize(
    "call",
    [
        "factorize(V, 5, max_iter=5)",
        "factorize(V, 5, max_iter=5, n_init=3)",
        "factorize(V.astype(np.float32), 5, max_iter=5)",
        "factorize(scipy.sparse.csr_array(V * (V > 0.8)), 5, max_iter=5)",
        "factorize_many([V[:90, :80]] * 40, 5, max_iter=5)",
        "factorize_many(V, [3, 5], n_init=4, max_iter=5)",
        "NMF(5, tol=1e-2).fit(V)",
    ],
)
def test_the_threads_of_the_core_are_the_only_ones(call):
    """Torch would start as many again."""
    code = f"""
import numpy as np, os, scipy.sparse, torch
from factormer import NMF, factorize, factorize_many
threads = lambda: len(os.listdir("/proc/self/task"))
V = np.random.default_rng(0).random((1500, 1000))
factorize(V[:20, :20], 2, max_iter=1)
before = threads()
{call}
print(threads() - before)
"""
    (more,) = printed(code, FACTORMER_NUM_THREADS="3", OMP_NUM_THREADS="3")
    assert int(more) <= 2  # beside the thread that calls
