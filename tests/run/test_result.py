"""A result says in words why the run ended."""

import pytest

from factormer.run.result import Status


@pytest.mark.parametrize("status", Status)
def test_status_reads_as_a_sentence(status):
    assert str(status) == f"{status.name}: {status.value}"
