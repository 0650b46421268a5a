"""Factors come out the same where code cannot be kept, cannot be compiled, or numba is absent."""

import logging
import os
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core import caching, config
from numba.core.dispatcher import Dispatcher

import factormer
from factormer import kernels
from factormer.kernels import compile

SIGNATURE = types.float64(types.float64)
V = np.random.default_rng(0).random((12, 9))

NO_FOLDER = """
from numba.core import caching

def refuse(self):
    raise OSError("read-only file system")

caching._CacheLocator.ensure_cache_path = refuse
"""
OTHER_NAMES = """
from numba.core import caching, cpu, options

for holder in cpu.CPUTargetOptions.__mro__:
    if "_nrt" in vars(holder):
        del holder._nrt

class Renamed(caching.IndexDataCacheFile):
    def __init__(self, cache_path, filename_base, source_stamp):
        super().__init__(cache_path, filename_base, source_stamp)
        del self._source_stamp

caching.IndexDataCacheFile = Renamed
"""
NO_NUMBA = "import sys; sys.modules['numba'] = None"
NO_COMPILATION = """
from numba.core.dispatcher import Dispatcher

def refuse(self, signature):
    raise RuntimeError("no memory may be run")

Dispatcher.compile = refuse
"""
NO_INTRINSIC = "import numba.extending; del numba.extending.intrinsic"
CALLS = """
import numpy as np
import factormer

V = np.random.default_rng(0).random((12, 9))
model = factormer.NMF(3, random_state=0).fit(V)
codes = model.transform(V[:2])
print(factormer.factorize(V, 3).rmse, model.reconstruction_err_, codes.sum())
"""


def answers(preamble: str) -> tuple[list[float], str]:
    """What a process of its own computes after the preamble, and what it says."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", preamble + CALLS],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [float(number) for number in done.stdout.split()], done.stderr


@pytest.mark.parametrize("preamble", [NO_NUMBA, NO_COMPILATION], ids=["absent", "failing"])
def test_torch_gives_the_same_where_nothing_is_compiled(preamble):
    found, said = answers(preamble)
    assert said.count("No compiled code") == 1
    assert len(said.splitlines()) == 1
    np.testing.assert_allclose(found, here(), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preamble", "sentence"),
    [
        (NO_FOLDER, "not kept on the disk"),
        (OTHER_NAMES, "not kept on the disk"),
        (NO_INTRINSIC, "No compiled code"),
    ],
    ids=["unwritable", "other names", "no intrinsic"],
)
def test_a_process_compiles_for_itself_where_nothing_can_be_kept(preamble, sentence):
    found, said = answers(preamble)
    assert said.count(sentence) == 1
    assert len(said.splitlines()) == 1
    np.testing.assert_allclose(found, here(), rtol=1e-6)


@cache
def here() -> list[float]:
    model = factormer.NMF(3, random_state=0).fit(V)
    codes = model.transform(V[:2])
    plain: Any = factormer.factorize(V, 3).rmse
    return [plain, model.reconstruction_err_, codes.sum()]


@pytest.fixture
def said(monkeypatch, caplog):
    """What is logged, though it may have been said before."""
    monkeypatch.setattr(kernels, "_said", set())
    caplog.set_level(logging.WARNING, "factormer.kernels")
    return caplog


def doubled(x):
    return 2 * x


def compiled_twice() -> list[int]:
    """Whether the code of a function comes from the disk, the first time and the second."""
    made: list[Any] = [compile.jit(SIGNATURE)(doubled) for _ in range(2)]
    assert [function(1.5) for function in made] == [3.0, 3.0]
    return [sum(function.stats.cache_hits.values()) for function in made]  # pyright: ignore


def test_a_folder_that_is_none_is_done_without(monkeypatch, said, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "file"))
    impl = caching.CompileResultCacheImpl
    monkeypatch.setattr(impl, "_locator_classes", impl._locator_classes[:1])  # the user's alone
    assert compiled_twice() == [0, 0]
    assert len(said.records) == 1
    assert "NUMBA_CACHE_DIR" in said.text


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), EOFError("cut")])
@pytest.mark.parametrize("method", ["_save_overload", "_load_overload"])
def test_a_disk_that_fails_is_done_without(method, error, monkeypatch, said, tmp_path):
    def fail(*_):
        raise error

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(caching.Cache, method, fail)
    assert compiled_twice() == [0, 0]
    assert len(said.records) == 1


def test_a_file_that_was_cut_is_compiled_anew(monkeypatch, said, tmp_path):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    assert compiled_twice() == [0, 1]
    for file in tmp_path.rglob("*.nb?"):
        file.write_bytes(file.read_bytes()[:20])
    assert compiled_twice()[0] == 0


def test_an_option_that_numba_does_not_know_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile, "_UNCOUNTED", {})
    assert compiled_twice() == [0, 1]


def test_one_function_that_does_not_compile_leaves_the_others(monkeypatch, said):
    def fail(*_):
        raise TypeError("this numba knows no such loop")

    monkeypatch.setattr(kernels, "_loaded", kernels._loaded.__wrapped__)
    monkeypatch.setattr(Dispatcher, "compile", fail)
    monkeypatch.setattr("factormer.kernels.loops.parts", lambda: compile.jit(SIGNATURE)(doubled))
    assert kernels.compiled("parts") is None
    assert kernels.compiled("parts") is None
    assert kernels.compiled() is not None
    assert [record.levelname for record in said.records] == ["WARNING"]
    assert "TypeError: this numba knows no such loop" in said.text
