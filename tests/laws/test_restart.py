"""The restart rule in torch and the compiled one decide alike."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numba import types
from torch import Tensor

from factormer import kernels
from factormer.accelerate.base import Restarted
from factormer.accelerate.extrapolate import Extrapolation
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from tests.laws.cases import law

restart: Any = kernels.restarting()
pytestmark = pytest.mark.skipif(restart is None, reason="numba is absent")
PROBLEM = Problem(Dense(torch.ones(1, 1, dtype=torch.float64)), 1)


class Told(NamedTuple):
    factors: Factors
    error: float

    def sq_error(self, problem: Problem) -> Tensor:
        return torch.tensor(self.error, dtype=torch.float64)


@dataclass(frozen=True)
class Scripted:
    """A solver whose iterations end at the errors it was told."""

    errors: list[float]

    def init(self, problem: Problem, x0: Factors) -> Told:
        return Told(x0, math.inf)

    def step(self, problem: Problem, state: Told) -> Told:
        return state._replace(error=self.errors.pop(0))

    def adopt(self, problem: Problem, state: Told, x: Factors) -> Told:
        return state._replace(factors=x)


def after(progress, error, rates):
    return restart.judged(progress, error, rates)


@pytest.fixture(scope="module")
def compiled() -> Any:
    from factormer.kernels.compile import jit

    return jit(restart.PROGRESS(restart.PROGRESS, types.float64, restart.RATES))(after)


ERRORS = st.sampled_from([0.0, 0.5, 1.0, 1.0 + 1e-12, 2.0, 3.0, math.inf, math.nan])


@law
@given(
    errors=st.lists(ERRORS, min_size=1, max_size=12),
    rates=st.tuples(st.floats(1.1, 3), st.floats(1, 1.5), st.floats(1, 1.2)),
)
def test_restart_rule_is_the_same_in_torch_and_compiled(compiled, errors, rates):
    solver = Restarted(Scripted(list(errors)), Extrapolation(0.5, *rates))
    point = torch.ones(1, 1, dtype=torch.float64)
    state = solver.init(PROBLEM, Factors(point, point))
    progress = restart.Progress(0.5, 0.5, 1.0, math.inf, True)
    for error in errors:
        state = solver.step(PROBLEM, state)
        progress = compiled(progress, error, restart.Rates(*rates))
        expected = torch.stack([*state.memory, state.error])
        torch.testing.assert_close(torch.tensor(progress[:4]).double(), expected, equal_nan=True)
        assert progress.plain == bool(state.plain)
