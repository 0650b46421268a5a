"""A clock that stands still, and a problem with an exact fit."""

import time

import pytest
import torch

from factormer.data import Dense
from factormer.problem.problem import Problem
from tests.run.scripted import Clock


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


@pytest.fixture
def problem(rng) -> Problem:
    V = torch.rand(8, 3, generator=rng) @ torch.rand(3, 7, generator=rng)
    return Problem(Dense(V.double()), 3)
