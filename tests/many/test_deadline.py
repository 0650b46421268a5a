"""A deadline comes at its time, or once somebody says so."""

import time
from math import inf

import pytest

from factormer.many.deadline import Deadline


@pytest.mark.parametrize(("until", "is_over"), [(None, False), (inf, False), (-inf, True)])
def test_time_ends_a_call(until, is_over):
    deadline = Deadline(until)
    assert deadline.is_over() is is_over
    assert not deadline.is_ended()


def test_anybody_may_end_a_call():
    deadline = Deadline(time.perf_counter() + 3600)
    deadline.end()
    assert deadline.is_over()
    assert deadline.is_ended()
