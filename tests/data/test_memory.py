"""A container's limit counts as the machine's own memory does, for ranks and for files."""

import math

import numpy as np
import pytest

from factormer import factorize
from factormer.data import memory

LIMIT = 2**20
VERSIONS = {
    "version 2": ("0::/{}\n", "{}", "memory.max", "max\n"),
    "version 1": ("4:memory:/{}\n0::/\n", "memory/{}", "memory.limit_in_bytes", f"{2**63}\n"),
}


@pytest.fixture(autouse=True)
def _asked_anew():
    memory.memory.cache_clear()
    yield
    memory.memory.cache_clear()


@pytest.fixture(params=VERSIONS)
def group(request, tmp_path, monkeypatch):
    """The file with the limit of a group, in a folder that stands for the system's."""
    own, folder, name, none = VERSIONS[request.param]

    def make(*, member: str, limited: str) -> None:
        (tmp_path / "cgroup").write_text(own.format(member))
        for path, limit in ((member, none), (limited, f"{LIMIT}\n")):
            place = tmp_path / folder.format(path)
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(limit)
        monkeypatch.setattr(memory, "_GROUPS", tmp_path)
        monkeypatch.setattr(memory, "_OWN", tmp_path / "cgroup")

    return make


@pytest.mark.parametrize("limited", ["pod/one", "pod", ""], ids=["its own", "above", "topmost"])
def test_the_lowest_limit_counts(group, limited):
    group(member="pod/one", limited=limited)
    assert memory.memory() == LIMIT


def test_the_limits_of_others_do_not_count(group):
    group(member="pod/one", limited="pod/two")
    assert memory.memory() > LIMIT


def test_there_is_memory_where_nothing_tells_of_groups(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_OWN", tmp_path / "none")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    assert memory.memory() > LIMIT


def test_the_limit_is_finite_where_the_system_does_not_say_its_memory(monkeypatch):
    monkeypatch.setattr(memory, "memory", lambda: math.inf)
    assert LIMIT < memory.as_bytes(None) < math.inf


def test_a_rank_beyond_the_limit_of_the_container_is_refused(group):
    group(member="pod", limited="pod")
    with pytest.raises(
        ValueError, match=r"rank is 4000; .* of 1e\+06 available: choose a lower rank"
    ):
        factorize(np.ones((30, 20)), 4000)
