"""Each rule of the core agrees with its twin in Python."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factormer.data import draws
from tests.core import reference
from tests.core.built import OBJECTS, SOURCE
from tests.core.lanes import core

SEEDS = st.integers(0, 2**64 - 1)
ERRORS = st.lists(st.floats(0, 10) | st.sampled_from([np.inf, np.nan]), max_size=60)


@given(SEEDS)
def test_draws_agree(seed):
    np.testing.assert_array_equal(core.draw(seed, 20), reference.draw(seed, 20))
    np.testing.assert_array_equal(
        np.float32(core.draw(seed, 20)), draws.uniform(seed, (20,)).numpy()
    )
    assert core.following(seed) == draws.following(seed)


@given(ERRORS)
def test_restarts_agree(errors):
    twin = reference.Momentum()
    for error, row in zip(errors, core.judge(errors), strict=True):
        ahead = twin.judge(error)
        assert row == (ahead, twin.beta, twin.bound, twin.error, twin.refused)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=100), st.sampled_from([0.3, 1e-2, 1e-4]))
def test_stops_agree(falls, tol):
    errors = list(np.cumprod(1 - np.array(falls) ** 3))
    assert core.settled_at(errors, tol) == reference.settled_at(errors, tol)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=12))
def test_orders_agree(sums):
    w, h = np.array(sums).T
    shares = w / max(w.max(), 1e-300) * (h / max(h.max(), 1e-300))
    shares = shares / max(shares.sum(), 1e-300) * 1e9
    if (np.abs(shares % 1 - 0.5) < 1e-3).any():
        return  # which way a half rounds is no matter
    expected = np.argsort(-np.floor(shares + 0.5), kind="stable")
    assert core.order_of(list(w), list(h)) == list(expected)


RULES = ["constants", "random", "extrapolate", "stop", "order"]


@pytest.mark.parametrize("name", RULES)
def test_rules_include_nothing_that_a_gpu_compiler_lacks(name):
    included = re.findall(r"#include (\S+)", (SOURCE / f"{name}.hpp").read_text("utf-8"))
    assert set(included) <= {"<cstdint>", '"constants.hpp"'}


@pytest.mark.skipif(not shutil.which("nm"), reason="nm lists the symbols of object files")
@pytest.mark.skipif(not OBJECTS.exists(), reason="the core was compiled elsewhere")
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_no_function_of_an_instruction_set_can_replace_one_of_another(isa):
    files = [str(file) for file in OBJECTS.glob(f"core_{isa}.dir/**/*.o")]
    if isa not in core.isas():
        pytest.skip("this machine lacks the instruction set")
    listed = subprocess.run(["nm", "-C", *files], capture_output=True, text=True, check=True).stdout
    weak = [line for line in listed.splitlines() if re.search(r" [VWuvw] ", line)]
    foreign = [w for w in weak if f"factormer::{isa}::" not in w and "DW.ref." not in w]
    assert not foreign
