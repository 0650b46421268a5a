"""How compiled functions are made once, and call each other by address."""

import gc
from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core import config

from factormer.kernels.compile import Cache, address, array, calling, jit, once, stamp

SIGNATURE = types.float64(array(types.float64, layout="A"), types.int64)
corner_at = calling(SIGNATURE)


def corner(A, i):
    return A[i, i]


def twice(where, A):
    return corner_at(where[0], (A, 0)) + corner_at(where[0], (A, 1))


def test_compiled_code_calls_a_function_by_its_address():
    inner = jit(SIGNATURE, inner=True)(corner)
    whole, matrix = array(types.int64, 1), array(types.float64)
    outer = jit(types.float64(whole, matrix))(twice)
    assert outer(np.array([address(inner)]), np.array([[1.0, 2.0], [3.0, 5.0]])) == 6


def test_code_on_the_disk_is_stale_once_another_file_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))

    def loaded() -> int:
        compiled: Any = jit(SIGNATURE)(corner)
        return sum(compiled.stats.cache_hits.values())

    assert [loaded(), loaded()] == [0, 1]
    monkeypatch.setattr(Cache, "package", b"as it is after a change")
    assert [loaded(), loaded()] == [0, 1]


def test_the_stamp_is_of_every_file(tmp_path):
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("signature = 1", encoding="utf-8")
    before = stamp(tmp_path)
    assert stamp(tmp_path) == before
    (tmp_path / "two.py").write_text("signature = 2", encoding="utf-8")
    assert stamp(tmp_path) != before


def test_what_is_made_once_is_kept_for_each_argument():
    made = []
    get = once(lambda name: made.append(name) or [name])
    assert get("a") is get("a")
    assert get("b") is not get("a")
    assert made == ["a", "b"]


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_again_after_an_error(collects):
    def fail():
        assert not gc.isenabled()
        raise RuntimeError("no")

    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(RuntimeError, match="no"):
            once(fail)()
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
