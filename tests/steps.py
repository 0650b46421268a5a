"""Single steps: the slow twin of `solvers.loop`, which leaps where it can."""

from collections.abc import Iterator
from typing import Any

from factormer.data.factors import Factors
from factormer.problem.problem import Problem
from factormer.solvers.base import Solver


def steps(problem: Problem, solver: Solver[Any], x0: Factors) -> Iterator[Any]:
    """Yield the states x⁰, x¹, … without end."""
    state = solver.init(problem, x0)
    while True:
        yield state
        state = solver.step(problem, state)
