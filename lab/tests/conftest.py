"""The shape checks and the fixtures of the package's own tests."""

from tests.conftest import pytest_runtest_setup, rng

__all__ = ["pytest_runtest_setup", "rng"]
